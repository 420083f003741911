"""Which CPUs the static CPU manager policy takes for a container, since the next container finds them gone.

After kubelet 1.34's pkg/kubelet/cm/cpumanager/cpu_assignment.go: whole sockets and NUMA nodes, then whole cores, then
single CPUs; or with distribute-cpus-across-numa evenly over as few nodes as can be (KEP-2902).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpu_topology.predict.ends import Refused, Undecided
from gpu_topology.predict.facts import CpuLayout
from gpu_topology.predict.hints import bits_of

Slice = tuple[list[int], int]  # as Go has it: a list that others may share, and how much of it counts
Spread = tuple[float, Slice | None, Slice]  # balance, nodes that give the remainder, nodes that give an even part


def pack_cpus(layout: CpuLayout, available: int, size: int, *, whole_cores: bool = True) -> int:
    """Takes `size` of the available CPUs: the largest units that are wholly free, the fullest places first.

    Takes none if there are not as many.
    """
    if available.bit_count() < size:
        return 0
    free = available
    per_socket = len(layout.cpus) // len(layout.by_socket)
    for level in (*_levels(layout), layout.by_core) if whole_cores else _levels(layout):
        left = size - (available & ~free).bit_count()
        for unit in _in_order(layout, free, level) if left else ():
            cpus = level[unit]
            full = per_socket if level is layout.by_socket else cpus.bit_count()
            if (free & cpus).bit_count() == full and cpus.bit_count() <= left:
                left -= cpus.bit_count()
                free &= ~cpus
    for cpu in _cpus_in_order(layout, free, whole_cores=whole_cores):
        if (available & ~free).bit_count() == size:
            break
        free &= ~(1 << cpu)
    return available & ~free


def distribute_cpus(layout: CpuLayout, available: int, size: int, group: int) -> int:
    """Takes `size` CPUs, a multiple of `group`, in such groups, evenly from as few NUMA nodes as possible.

    Raises:
        Refused: kubelet fails, as it can where it mixes up sets of four nodes and more (see `_combinations`).
        Undecided: kubelet would never end.
    """
    nodes = list(_in_order(layout, available, layout.by_node))
    per_node = math.ceil(math.ceil(len(layout.cpus) / group) / len(layout.by_node))
    groups = size // group
    for count in range(math.ceil(groups / per_node), min(groups, len(nodes)) + 1):
        best = _best_spread(layout, available, nodes, count, size, group)
        if best is not None:
            return _take_spread(layout, available, best, size, group)
    return pack_cpus(layout, available, size)


def _best_spread(
    layout: CpuLayout, available: int, nodes: Sequence[int], count: int, size: int, group: int
) -> Spread | None:
    """The set of `count` nodes that leaves the machine most evenly used; a node's part comes in whole groups."""
    free = {node: (available & layout.by_node[node]).bit_count() for node in nodes}
    part = size // count // group * group
    best: Spread | None = None
    for chosen in _combinations(nodes, count):
        if best is not None and best[0] == 0:
            break
        own = _read(chosen)
        if sum(free[node] // group for node in own) * group < size or any(free[node] < part for node in own):
            continue
        after = {node: amount - part if node in own else amount for node, amount in free.items()}
        balance, extra = _best_remainder(after, own, size - part * count, group)
        if balance < (best[0] if best else math.inf):
            best = balance, extra, chosen
    return best


def _best_remainder(after: Mapping[int, int], own: Iterable[int], rest: int, group: int) -> tuple[float, Slice | None]:
    """Which nodes give one group more, and how even the machine is then; infinite if that cannot be."""
    if rest == 0:
        return _deviation(after.values()), None
    able = [node for node in own if after[node] >= group]
    best: tuple[float, Slice | None] = math.inf, None
    for count in range(len(able), 0, -1):
        for chosen in _combinations(able, count):
            nodes = _read(chosen)
            if sum(after[node] for node in nodes) < rest:
                continue
            balance = _deviation(_without(after, nodes, rest, group).values())
            if balance < best[0]:
                best = balance, chosen
    return best


def _without(after: Mapping[int, int], nodes: Iterable[int], rest: int, group: int) -> dict[int, int]:
    left = dict(after)
    while rest > 0:
        before = rest
        for node in nodes:
            if rest and left[node] >= group:
                left[node] -= group
                rest -= group
        if rest == before:
            raise Undecided("kubelet's search for an even share of CPUs would not end")
    return left


def _take_spread(layout: CpuLayout, available: int, best: Spread, size: int, group: int) -> int:
    _, extra, chosen = best
    nodes = _read(chosen)
    part = size // len(nodes) // group * group
    free = available
    for node in nodes:
        free &= ~pack_cpus(layout, free & layout.by_node[node], part)
    rest = size - part * len(nodes)
    while rest > 0:
        before = rest
        for node in _read(extra) if extra else ():
            own = free & layout.by_node[node]
            if rest and own.bit_count() >= group:
                free &= ~pack_cpus(layout, own, group)
                rest -= group
        if rest == before:
            raise Undecided("kubelet's search for an even share of CPUs would not end")
    taken = available & ~free
    if taken.bit_count() != size:
        raise Refused(f"kubelet loses count while it spreads {size} CPUs over NUMA nodes")
    return taken


def _combinations(items: Sequence[int], size: int) -> Iterator[Slice]:
    """The sets of `size` items, in lists that later sets may be written into.

    Kubelet keeps the best set and goes on, though from four nodes on the next set can lie in the same memory: what it
    then uses is the last set with the same beginning. This does the same, since the node does.
    """

    def extend(start: int, chosen: Slice) -> Iterator[Slice]:
        missing = size - chosen[1]
        if not missing:
            yield chosen
            return
        for index in range(start, len(items) - missing + 1):
            yield from extend(index + 1, _append(chosen, items[index]))

    return extend(0, ([], 0))


def _append(part: Slice, item: int) -> Slice:
    shared, length = part
    if length == len(shared):  # full: Go copies it to a list of twice the size
        shared = shared + [0] * max(1, length)
    shared[length] = item
    return shared, length + 1


def _read(part: Slice) -> tuple[int, ...]:
    shared, length = part
    return tuple(shared[:length])


def _deviation(counts: Iterable[int]) -> float:
    """Kubelet's standard deviation, rounded as it does."""
    values = list(counts)
    mean = _thousandths(sum(values) / len(values))
    return _thousandths(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))


def _thousandths(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000


def _levels(layout: CpuLayout) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Sockets and NUMA nodes, those first that contain the others."""
    if len(layout.by_socket) >= len(layout.by_node):
        return layout.by_node, layout.by_socket
    return layout.by_socket, layout.by_node


def _in_order(layout: CpuLayout, free: int, level: Mapping[int, int]) -> Iterator[int]:
    """The units of a level that have a free CPU: place by place from the outermost, in each by how few are free."""
    outer, inner = _levels(layout)
    within: Iterable[int] = (free,)
    for place in (outer, inner, layout.by_core):
        units = [unit for own in within for unit in _fullest(place, free & own)]
        if place is level:
            return iter(units)
        within = [place[unit] for unit in units]
    return iter(())


def _fullest(level: Mapping[int, int], free: int) -> list[int]:
    found = [unit for unit, cpus in level.items() if cpus & free]
    return sorted(found, key=lambda unit: ((level[unit] & free).bit_count(), unit))


def _cpus_in_order(layout: CpuLayout, free: int, *, whole_cores: bool) -> Iterator[int]:
    level = layout.by_core if whole_cores else layout.by_socket
    for unit in _in_order(layout, free, level):
        yield from bits_of(level[unit] & free)
