"""The device manager: hints and allocations of one resource that a device plugin serves.

After kubelet 1.34's pkg/kubelet/cm/devicemanager. Which of several devices it takes is chance, or the plugin's wish;
so devices are counted by where they are, and an allocation has several outcomes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpu_topology.predict.demand import Role
from gpu_topology.predict.ends import Refused
from gpu_topology.predict.facts import PluginDevice
from gpu_topology.predict.hints import Hints, make_hints, place_of

Counts = tuple[int, ...]


@dataclass(frozen=True)
class Pool:
    """A resource's devices, counted by the NUMA nodes they are near; a device without topology has None there."""

    resource: str
    places: tuple[int | None, ...]
    all: Counts
    free: Counts  # and healthy
    reusable: Counts  # allocated to an init container of this pod
    healthy: int
    allocated: int

    @property
    def has_topology(self) -> bool:
        """Whether one device at least says where it is; if none does, the resource takes no part in hints."""
        return any(self.places)


def make_pool(resource: str, devices: Sequence[PluginDevice]) -> Pool:
    """Counts what a plugin announced."""
    every: dict[int | None, int] = {}
    free: dict[int | None, int] = {}
    healthy = allocated = 0
    for device in devices:
        place = place_of(device.numa_nodes)
        every[place] = every.get(place, 0) + 1
        healthy += device.is_healthy
        allocated += device.is_allocated
        if device.is_healthy and not device.is_allocated:
            free[place] = free.get(place, 0) + 1
    places = tuple(every)
    return Pool(
        resource=resource,
        places=places,
        all=tuple(every.values()),
        free=tuple(free.get(place, 0) for place in places),
        reusable=(0,) * len(places),
        healthy=healthy,
        allocated=allocated,
    )


def device_hints(pool: Pool, nodes: int, requested: int) -> Hints:
    """The sets of `nodes` on which `requested` devices can be had."""
    if not pool.has_topology:
        return None
    is_again = any(pool.reusable)
    if sum(pool.free) + sum(pool.reusable) < requested:
        return ()

    def could_hold(some: int) -> bool:
        return _near(pool.places, pool.all, some) >= requested

    def holds(some: int) -> bool:
        used_again = 0
        if not is_again:
            return _near(pool.places, pool.free, some) >= requested
        for place, count in zip(pool.places, pool.reusable, strict=True):
            if count and place is not None:
                if not place & some:
                    return False
                used_again += count
        return used_again + _near(pool.places, pool.free, some) >= requested

    return make_hints(nodes, could_hold, holds)


def allocate_devices(pool: Pool, requested: int, role: Role, affinity: int | None) -> Iterator[Pool]:
    """The pools that may be left after an allocation, each once. Raises Refused."""
    if not pool.healthy:
        raise Refused(f"no device of {pool.resource} is healthy")
    again = min(requested, sum(pool.reusable))
    needed = requested - again
    if sum(pool.free) < needed:
        raise Refused(f"{needed} of {pool.resource} are needed and {sum(pool.free)} are free and healthy")
    near = tuple(
        count if affinity is not None and place and place & affinity else 0
        for place, count in zip(pool.places, pool.free, strict=True)
    )
    first = min(needed, sum(near))
    if first < sum(near) or first == needed:
        fresh = _choices(near, needed)
    else:
        rest = tuple(count - own for count, own in zip(pool.free, near, strict=True))
        fresh = (_plus(near, more) for more in _choices(rest, needed - first))
    used = tuple(_choices(pool.reusable, again))
    for taken in fresh:
        for old in used:
            yield _after(pool, taken, old, role)


def _after(pool: Pool, taken: Counts, old: Counts, role: Role) -> Pool:
    reusable = _plus(pool.reusable, taken) if role is Role.INIT else _minus(pool.reusable, old)
    free = _minus(pool.free, taken)
    allocated = pool.allocated + sum(taken)
    return Pool(pool.resource, pool.places, pool.all, free, reusable, pool.healthy, allocated)


def _choices(counts: Counts, size: int) -> Iterator[Counts]:
    """Every way to take `size` of these; none if there are not as many."""
    if not counts:
        if size == 0:
            yield ()
        return
    for first in range(max(0, size - sum(counts[1:])), min(counts[0], size) + 1):
        for others in _choices(counts[1:], size - first):
            yield (first, *others)


def _near(places: Sequence[int | None], counts: Counts, some: int) -> int:
    total = 0  # a loop, here as in hints: a generator in sum() takes twice as long
    for place, count in zip(places, counts, strict=True):
        if place and place & some:
            total += count
    return total


def _plus(some: Counts, more: Counts) -> Counts:
    return tuple(a + b for a, b in zip(some, more, strict=True))


def _minus(some: Counts, fewer: Counts) -> Counts:
    return tuple(a - b for a, b in zip(some, fewer, strict=True))
