"""The caches of the nodes, by the agent's rules: a dataset is taken if 1.2 times its size fits, after evicting the
longest unused ones that no job uses, and none goes if all together would not be enough.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dsagent.core.datasets import DatasetKey
from dsagent.core.eviction import plan
from dsagent.core.ports import CachedVersion
from dsagent.core.space import HEADROOM, Space
from scheduler_plugin.facts import Cache, Held, Key
from scheduler_plugin.facts import Space as Room

NAMESPACE, VERSION = "research", "1"


def key_of(dataset: int) -> Key:
    """A dataset's name in the view."""
    return NAMESPACE, f"d{dataset}"


@dataclass
class NodeCache:
    """A node's. `ready`: when each dataset that is whole was used last, in seconds; `coming`: those in flight."""

    capacity: int
    sizes: Sequence[int]
    ready: dict[int, float] = field(default_factory=dict)
    coming: set[int] = field(default_factory=set)
    users: Counter[int] = field(default_factory=Counter)

    @property
    def free(self) -> int:
        """Bytes."""
        return self.capacity - sum(self.sizes[one] for one in (*self.ready, *self.coming))

    def has(self, dataset: int) -> bool:
        """Whether it is whole."""
        return dataset in self.ready

    def make_room(self, datasets: Sequence[int]) -> Sequence[int]:
        """Evicts what must go before these can come; what went.

        Raises:
            AssertionError: they can never come; the filter should have refused the node.
        """
        missing = int(HEADROOM * sum(self.sizes[one] for one in datasets)) - self.free
        if missing <= 0:
            return ()
        unused = [self._version(one) for one in self.ready if not self.users[one]]
        found = plan(Space(missing), unused, lambda taken: Space(sum(one.allocated.bytes for one in taken)))
        assert found.enough, "a node was chosen that cannot hold the data"
        gone = [int(one.id) for one in found.versions]
        for one in gone:
            del self.ready[one]
        return gone

    def facts(self, rate: float, present: dict[int, int]) -> Cache:
        """What its agent would say. `present`: the bytes that are here of what is coming."""
        held = {
            key_of(one): (Held(VERSION, True, self.sizes[one], self.users[one] > 0, Room(self.sizes[one])),)
            for one in self.ready
        }
        for one in self.coming:
            held[key_of(one)] = (Held(VERSION, False, present.get(one, 0), True, Room(self.sizes[one])),)
        unused = sum(self.sizes[one] for one in self.ready if not self.users[one])
        return Cache(Room(self.free), Room(unused), False, rate, held)

    def _version(self, dataset: int) -> CachedVersion:
        size, used = self.sizes[dataset], datetime.fromtimestamp(self.ready[dataset], UTC)
        return CachedVersion(
            f"{dataset:05}", DatasetKey(*key_of(dataset)), VERSION, "", "", 1, size, Space(size), used, used
        )
