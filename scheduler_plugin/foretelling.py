"""Kubelet's verdicts for many nodes at once: nodes in the same situation share one, and it is remembered."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_topology.predict import UNKNOWN, Verdict
from scheduler_plugin.facts import NodeFacts, PodFacts
from scheduler_plugin.kubelet import shape, situation, verdict

MOST_SITUATIONS = 20_000  # before those of the past are forgotten
MOST_SHAPES = 256
MOST_NEW = 50  # predictions in one request, of up to 0.2 ms each: what is left is unknown until it is asked again
LATER = Verdict(UNKNOWN, "there was no time to predict it")


class Verdicts(NamedTuple):
    """The verdicts that there are, and which of them each slot has."""

    found: list[Verdict]
    places: NDArray[np.intp]

    def each(self, value: Callable[[Verdict], float]) -> NDArray[np.float64]:
        """A value of each slot's verdict."""
        return np.array([value(one) for one in self.found], dtype=np.float64)[self.places]


class Foretelling:
    """Verdicts by the shape of a pod and the situation of a node. Situation 0 is that nothing is known."""

    def __init__(self, slots: int) -> None:
        self.of_slot = np.zeros(slots, dtype=np.int64)
        self._numbers: dict[Hashable, int] = {None: 0}
        self._examples: list[NodeFacts] = [NodeFacts()]
        self._told: dict[Hashable, dict[int, Verdict]] = {}

    def put(self, slot: int, node: NodeFacts) -> None:
        """A node is in another situation."""
        key = situation(node)
        if (number := self._numbers.get(key)) is None:
            number = self._numbers[key] = len(self._examples)
            self._examples.append(node)
        self.of_slot[slot] = number

    def is_full(self) -> bool:
        """Whether there are too many situations to remember."""
        return len(self._examples) > MOST_SITUATIONS

    def grow(self, more: int) -> None:
        """There are so many more slots."""
        self.of_slot = np.concatenate([self.of_slot, np.zeros(more, dtype=np.int64)])

    def verdicts(self, pod: PodFacts, slots: NDArray[np.intp]) -> Verdicts:
        """What is foretold at these slots."""
        numbers, places = np.unique(self.of_slot[slots], return_inverse=True)
        key = shape(pod)
        if (told := self._told.get(key)) is None:
            if len(self._told) >= MOST_SHAPES:
                del self._told[next(iter(self._told))]
            told = self._told[key] = {}
        left = MOST_NEW
        found = []
        for number in numbers.tolist():
            if number not in told and left:
                told[number] = verdict(pod, self._examples[number])
                left -= 1
            found.append(told.get(number, LATER))
        return Verdicts(found, places)
