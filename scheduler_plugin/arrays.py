"""The facts of all nodes as arrays, a slot a node, brought up to date a node at a time.

A dataset or a class has its arrays from the first pod on that asks for it. Slot 0 is the node that nobody knows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_topology.predict import Verdict
from scheduler_plugin.columns import Array, Counts
from scheduler_plugin.facts import UNMEASURED_RATE, Key, NodeFacts, PodFacts, Wanted, holding
from scheduler_plugin.foretelling import Foretelling, Verdicts
from scheduler_plugin.terms.links import MOST, best_scores, free_devices

FIRST = 64  # slots; doubled when they are full
MOST_DATASETS = 100  # with arrays at a time: each has 200 KB with 5,000 nodes
MOST_VERSIONS = 8  # of a dataset, with arrays at a time


def room(node: NodeFacts) -> tuple[float, float]:
    """Bytes and inodes that the node's cache could give if all that is unused were evicted."""
    cache = node.cache
    if cache is None:
        return np.inf, np.inf
    inodes = cache.free.inodes + cache.evictable.inodes - node.promised.inodes if cache.inodes_limited else np.inf
    return float(cache.free.bytes + cache.evictable.bytes - node.promised.bytes), float(inodes)


class Arrays:
    """Arrays over slots."""

    def __init__(self) -> None:
        self.nodes: list[NodeFacts] = [NodeFacts()] * FIRST
        self._remembered: tuple[NodeFacts, ...] | None = None
        self._rate = np.full(FIRST, UNMEASURED_RATE)
        self._room = np.full((2, FIRST), np.inf)
        self._where: dict[Key, set[int]] = {}  # the slots where something is known of a dataset
        self._held: dict[Key, dict[Wanted, Counts]] = {}  # state, present bytes and whether it is placed
        self._users: dict[Key, Counts] = {}
        self._free: dict[str, Counts] = {}
        self._links: dict[str, Array] = {}
        self._foretelling = Foretelling(FIRST)

    def put(self, slot: int, node: NodeFacts) -> None:
        """Takes a node's facts."""
        if slot >= len(self.nodes):
            self._grow()
        before, self.nodes[slot] = self.nodes[slot], node
        self._remembered = None
        self._rate[slot] = node.cache.rate if node.cache else UNMEASURED_RATE
        self._room[:, slot] = room(node)
        self._put_datasets(slot, _datasets(before), node)
        if before.topology is not node.topology or before.requested != node.requested:
            self._put_situation(slot, node)
        for resource, free in self._free.items():
            free[slot] = node.free_devices(resource)
        if before.topology is not node.topology:
            for resource, links in self._links.items():
                links[slot] = best_scores(free_devices(node, resource))

    def remembered(self) -> Sequence[NodeFacts]:
        """All facts as they are now, by slot; the same sequence until something changes."""
        if self._remembered is None:
            self._remembered = tuple(self.nodes)
        return self._remembered

    def forget(self, key: Key) -> None:
        """A dataset's version or size has changed: its arrays are made anew when asked for."""
        self._held.pop(key, None)

    def of(self, slots: NDArray[np.intp]) -> "Slots":
        """The facts of some slots."""
        return Slots(self, slots)

    def held(self, wanted: Wanted) -> Counts:
        """State, present bytes and whether it is placed, of a dataset, by slot."""
        if not self._where.get(wanted.key):  # of what pods ask for and nobody has, nothing is remembered
            return np.zeros((3, len(self.nodes)), dtype=np.int64)
        known = self._held[wanted.key] = self._held.pop(wanted.key, {})  # the last are those that were asked for last
        if len(self._held) > MOST_DATASETS:
            del self._held[next(iter(self._held))]
        if (found := known.get(wanted)) is None:
            if len(known) >= MOST_VERSIONS:
                del known[next(iter(known))]
            found = known[wanted] = np.zeros((3, len(self.nodes)), dtype=np.int64)
            for slot in self._where[wanted.key]:
                found[:, slot] = holding(self.nodes[slot], wanted)
        return found

    def users(self, key: Key) -> Counts:
        """Pods that use a dataset, by slot."""
        if not self._where.get(key):
            return np.zeros(len(self.nodes), dtype=np.int64)
        if key not in self._users:
            if len(self._users) >= MOST_DATASETS:
                del self._users[next(iter(self._users))]
            users = self._users[key] = np.zeros(len(self.nodes), dtype=np.int64)
            for slot in self._where[key]:
                users[slot] = self.nodes[slot].users.get(key, 0)
        return self._users[key]

    def free_devices(self, resource: str) -> Counts:
        """Free devices of a class, by slot."""
        if resource not in self._free:
            self._free[resource] = np.array([node.free_devices(resource) for node in self.nodes])
        return self._free[resource]

    def links(self, resource: str) -> Array:
        """Scores of the best sets of a class, by slot and size."""
        if resource not in self._links:
            rows = [best_scores(free_devices(node, resource)) for node in self.nodes]
            self._links[resource] = np.array(rows, dtype=np.float64).reshape(len(rows), MOST + 1)
        return self._links[resource]

    def verdicts(self, pod: PodFacts, slots: NDArray[np.intp]) -> Verdicts:
        """Kubelet's verdicts on a pod at some slots."""
        return self._foretelling.verdicts(pod, slots)

    def _put_datasets(self, slot: int, before: set[Key], node: NodeFacts) -> None:
        now = _datasets(node)
        for key in before - now:
            self._where[key].discard(slot)
        for key in now - before:
            self._where.setdefault(key, set()).add(slot)
        for key in before | now:
            for wanted, held in self._held.get(key, {}).items():
                held[:, slot] = holding(node, wanted)
            if (users := self._users.get(key)) is not None:
                users[slot] = node.users.get(key, 0)

    def _put_situation(self, slot: int, node: NodeFacts) -> None:
        if self._foretelling.is_full():
            self._foretelling = Foretelling(len(self.nodes))
            for other, facts in enumerate(self.nodes):
                self._foretelling.put(other, facts)
        self._foretelling.put(slot, node)

    def _grow(self) -> None:
        more = len(self.nodes)
        self.nodes += [NodeFacts()] * more
        self._rate = np.concatenate([self._rate, np.full(more, UNMEASURED_RATE)])
        self._room = np.concatenate([self._room, np.full((2, more), np.inf)], axis=1)
        for known in self._held.values():
            for wanted, old in known.items():
                known[wanted] = np.concatenate([old, np.zeros((3, more), dtype=np.int64)], axis=1)
        for table in (self._users, self._free):
            for name, old in list(table.items()):
                table[name] = np.concatenate([old, np.zeros(more, dtype=np.int64)])  # type: ignore[index]
        self._foretelling.grow(more)
        self._links = {name: np.concatenate([old, np.zeros((more, MOST + 1))]) for name, old in self._links.items()}


def _datasets(node: NodeFacts) -> set[Key]:
    """Those of which something is known on a node."""
    return node.users.keys() | (node.cache.held.keys() if node.cache else set())


class Remembered(Sequence[NodeFacts]):
    """The facts of some slots at one moment."""

    def __init__(self, nodes: Sequence[NodeFacts], slots: NDArray[np.intp]) -> None:
        self._nodes = nodes
        self._slots = slots

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, place: Any) -> Any:
        return self._nodes[self._slots[place]]


class Slots:
    """See Columns."""

    def __init__(self, arrays: Arrays, slots: NDArray[np.intp]) -> None:
        self._arrays = arrays
        self._slots = slots

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nodes(self) -> "Remembered":
        """The facts themselves, as they are now."""
        return Remembered(self._arrays.remembered(), self._slots)

    @property
    def rate(self) -> Array:
        """See Columns.rate."""
        return self._arrays._rate[self._slots]  # noqa: SLF001 - a part of the same thing

    @property
    def room(self) -> tuple[Array, Array]:
        """See Columns.room."""
        found = self._arrays._room[:, self._slots]  # noqa: SLF001 - likewise
        return found[0], found[1]

    def state(self, wanted: Wanted) -> Counts:
        """See Columns.state."""
        row: Counts = self._arrays.held(wanted)[0]
        return row[self._slots]

    def present(self, wanted: Wanted) -> Counts:
        """See Columns.present."""
        row: Counts = self._arrays.held(wanted)[1]
        return row[self._slots]

    def placed(self, wanted: Wanted) -> Counts:
        """See Columns.placed."""
        row: Counts = self._arrays.held(wanted)[2]
        return row[self._slots]

    def users(self, key: Key) -> Counts:
        """See Columns.users."""
        return self._arrays.users(key)[self._slots]

    def free_devices(self, resource: str) -> Counts:
        """See Columns.free_devices."""
        return self._arrays.free_devices(resource)[self._slots]

    def links(self, resource: str) -> Array:
        """See Columns.links."""
        return self._arrays.links(resource)[self._slots]

    def verdicts(self, pod: PodFacts) -> Verdicts:
        """Kubelet's verdicts on a pod."""
        return self._arrays.verdicts(pod, self._slots)

    def foretold(self, pod: PodFacts, value: Callable[[Verdict], float]) -> Array:
        """See Columns.foretold."""
        return self.verdicts(pod).each(value)
