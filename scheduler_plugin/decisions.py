"""What was asked and answered lately, with all that it was made from, so that it can be explained as it was."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from scheduler_plugin.facts import Needs, NodeFacts

KEPT = 200  # pods: each has references to the facts of its nodes, which are shared


@dataclass(frozen=True)
class Filtered:
    """What filter was asked about a pod, when, and which of the nodes it refused why. `written`: the nodes' names as a
    JSON array, which takes a quarter of the memory of 5,000 texts and is gone at once.
    """

    when: datetime
    needs: Needs
    nodes: Sequence[NodeFacts]
    written: bytes
    refused: dict[str, str]


@dataclass(frozen=True)
class Scored:
    """What prioritize was asked, when, and what it answered. `written` as in Filtered."""

    when: datetime
    needs: Needs
    nodes: Sequence[NodeFacts]
    written: bytes
    scores: Sequence[int]


@dataclass(frozen=True)
class Decision:
    """The last of each for a pod; `scored` None: kube-scheduler asked for no scores."""

    filtered: Filtered | None = None
    scored: Scored | None = None


class Decisions:
    """The last decisions, by pod."""

    def __init__(self) -> None:
        self._by_pod: OrderedDict[tuple[str, str], Decision] = OrderedDict()

    def filter(self, filtered: Filtered) -> None:
        """A new attempt to place a pod begins with this."""
        self._keep(filtered.needs, Decision(filtered))

    def score(self, scored: Scored) -> None:
        """The second part of an attempt."""
        self._keep(scored.needs, replace(self.of(*_key(scored.needs)) or Decision(), scored=scored))

    def of(self, namespace: str, name: str) -> Decision | None:
        """The last one for a pod."""
        return self._by_pod.get((namespace, name))

    def _keep(self, needs: Needs, decision: Decision) -> None:
        key = _key(needs)
        self._by_pod[key] = decision
        self._by_pod.move_to_end(key)
        if len(self._by_pod) > KEPT:
            self._by_pod.popitem(last=False)


def _key(needs: Needs) -> tuple[str, str]:
    return needs.pod.namespace, needs.pod.name
