"""The Static memory manager policy: hints and allocations of memory and huge pages.

After kubelet 1.34's pkg/kubelet/cm/memorymanager. A container's memory lies on one node, or on a group of nodes that
is used as a whole: a node that is in a group serves no container alone, nor another group.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_topology.predict.demand import Role
from gpu_topology.predict.ends import Refused, Undecided
from gpu_topology.predict.facts import MemoryZone
from gpu_topology.predict.hints import Hint, make_hints, mask_of, nodes_of


@dataclass(frozen=True)
class Zone:
    """A NUMA node's memory: what is free by resource, how many blocks lie here, and the group it is in."""

    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    assignments: int
    group: int


@dataclass(frozen=True)
class Memory:
    """All zones, and what init containers of this pod had: (group, resource) -> bytes."""

    zones: Mapping[int, Zone]
    reusable: Mapping[tuple[int, str], int]

    @property
    def nodes(self) -> int:
        """The NUMA nodes as a mask."""
        return mask_of(self.zones)


def make_memory(zones: Mapping[int, MemoryZone]) -> Memory:
    """The state before the pod."""
    return Memory(
        {
            node: Zone(zone.allocatable, zone.free, zone.assignments, mask_of(zone.group or (node,)))
            for node, zone in zones.items()
        },
        {},
    )


def check_known(memory: Memory, requested: Mapping[str, int]) -> None:
    """Raises Undecided for a resource that a zone does not name: kubelet itself would crash."""
    for name in requested:
        for node, zone in memory.zones.items():
            if name not in zone.allocatable or name not in zone.free:
                raise Undecided(f"how much {name} NUMA node {node} has is not known")


def memory_hints(memory: Memory, requested: Mapping[str, int]) -> tuple[Hint, ...]:
    """The sets of nodes on which all of it fits, the same for every resource; none is no preference to kubelet."""

    def could_hold(some: int) -> bool:
        for name, amount in requested.items():
            if sum([memory.zones[node].allocatable[name] for node in nodes_of(some)]) < amount:
                return False
        return True

    def holds(some: int) -> bool:
        return (
            could_hold(some)
            and not _breaks_group(memory, some, alone_in_group=False)
            and all(
                _free(memory, some, name) + memory.reusable.get((some, name), 0) >= amount
                for name, amount in requested.items()
            )
        )

    return make_hints(memory.nodes, could_hold, holds) if requested else ()


def allocate_memory(memory: Memory, requested: Mapping[str, int], role: Role, affinity: Hint) -> Memory:
    """What is left after a container has got its memory. Raises Refused."""
    mask, preferred = affinity
    if mask is None:
        mask, preferred = _best(memory, requested, 0, preferred)
    if any(_free(memory, mask, name) < amount for name, amount in requested.items()):
        mask, preferred = _best(memory, requested, mask, preferred)
    if _breaks_group(memory, mask, alone_in_group=True):
        raise Refused(f"memory on NUMA nodes {_text(mask)} would break up a group of nodes that others use")
    zones = dict(memory.zones)
    reusable = dict(memory.reusable)
    for name, amount in requested.items():
        _take(zones, mask, name, max(0, amount - reusable.get((mask, name), 0)))
        had = reusable.get((mask, name), 0)
        if role is Role.INIT:
            reusable[mask, name] = max(had, amount)
        elif had:
            reusable[mask, name] = max(0, had - amount)
    return Memory(zones, reusable)


def _best(memory: Memory, requested: Mapping[str, int], within: int, preferred: bool) -> tuple[int, bool]:
    """The best set of nodes that has all of `within`. Raises Refused."""
    fitting = [
        hint for hint in memory_hints(memory, requested) if hint.mask is not None and hint.mask & within == within
    ]
    if not fitting:
        raise Refused(f"no set of NUMA nodes{f' with {_text(within)}' if within else ''} has the memory free")
    best = min(fitting, key=lambda hint: (not hint.preferred, (hint.mask or 0).bit_count(), hint.mask))
    if preferred and not best.preferred:
        raise Refused("the memory that is free lies on more NUMA nodes than it would have to")
    return best.mask or 0, best.preferred


def _breaks_group(memory: Memory, some: int, *, alone_in_group: bool) -> bool:
    """Whether a container's memory on `some` is against the rule that groups of nodes do not overlap.

    A hint keeps single nodes out of groups; an allocation, once decided, does not (`alone_in_group`).
    """
    zones = [memory.zones[node] for node in nodes_of(some)]
    if len(zones) == 1:
        return not alone_in_group and zones[0].group.bit_count() > 1
    return any(zone.assignments and (zone.group.bit_count() == 1 or zone.group != some) for zone in zones)


def _take(zones: dict[int, Zone], mask: int, name: str, amount: int) -> None:
    for node in nodes_of(mask):
        zone = zones[node]
        taken = min(amount, max(0, zone.free[name]))
        amount -= taken
        free = {**zone.free, name: zone.free[name] - taken}
        zones[node] = Zone(zone.allocatable, free, zone.assignments + 1, mask)


def _free(memory: Memory, some: int, name: str) -> int:
    return sum([memory.zones[node].free[name] for node in nodes_of(some)])


def _text(mask: int) -> str:
    return ", ".join(map(str, nodes_of(mask)))
