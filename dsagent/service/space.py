"""Making room: the ledger of promises, and eviction when a new dataset does not fit."""

import os
from collections.abc import Collection, Mapping

from dsagent.core.errors import InsufficientStorage
from dsagent.core.eviction import Evicted, Plan, plan
from dsagent.core.manifest import Totals
from dsagent.core.ports import Decision, Reservation
from dsagent.core.space import HEADROOM, Disk, Space, available, largest_directory
from dsagent.service.flight import told
from dsagent.service.leases import leased_versions
from dsagent.service.node import Node, is_free, step
from dsagent.service.removal import Freed, empty_trash, left_by_attempts, remove, set_aside


def reserve(node: Node, needs: Mapping[str, Space], subject: str, keep: Collection[str]) -> list[Evicted]:
    """Promises each flight its need, all or none, after evicting what must go so that 1.2 times as much fits.

    A promise that one of the flights has already is replaced. Versions with an id in `keep` stay. Space counts as
    free when it is: what was evicted is deleted before the promise. Raises InsufficientStorage with the numbers, and
    evicts nothing, if even all unused versions are not enough.
    """
    with node.catalog.decide() as decision:  # on its own: what a decision writes is read only after its end
        drop_dead(node, decision)
    goal = sum(needs.values(), Space()).scaled(HEADROOM)
    evicted: list[Evicted] = []
    while True:
        with node.catalog.decide() as decision:
            missing = goal - headroom(node, needs)
            if not Space().covers(missing):
                staged = sum((left_by_attempts(node, flight) for flight in needs), Space())
                missing = goal - headroom(node, needs, staged)
            if Space().covers(missing):
                for flight, need in needs.items():
                    decision.reserve(Reservation(flight, need))
                return evicted
            step("evict")
            if not clear_abandoned(node, needs):
                made = room_for(node, missing, keep)
                if not made.enough:
                    raise shortage(node, subject, goal, made, headroom(node, needs))
                remove(node, decision, made.versions)
                evicted += [Evicted(str(v.dataset), v.version, v.allocated.bytes) for v in made.versions]
        empty_trash(node)


def headroom(node: Node, asking: Collection[str] = (), staged: Space = Space()) -> Space:  # noqa: B008 - it is frozen
    """What may be promised now to the flights `asking`, which have `staged` on the disk already."""
    used = sum((version.allocated for version in node.catalog.versions()), Space())
    promises = [promise for promise in node.catalog.reservations() if promise.flight not in asking]
    reserved = sum((promise.space for promise in promises), Space())
    disk = node.disk.measure()
    # What a flight has behind it lies on the disk, or was not needed: of its promise that part is not to be kept free.
    for promise in promises:
        staged += told(node, promise.flight).within(promise.space)
    return available(disk._replace(free=disk.free + staged), node.limits, used, reserved)


def room_for(node: Node, missing: Space, keep: Collection[str]) -> Plan:
    """The eviction that would free `missing`."""
    leased = leased_versions(node)
    candidates = [v for v in node.catalog.versions() if v.id not in leased and v.id not in keep]
    return plan(missing, candidates, Freed(node))


def shortage(node: Node, subject: str, goal: Space, made: Plan, free: Space) -> InsufficientStorage:
    """The error for what cannot fit: 1.2 times its size is `goal`, and `free` may still be used."""
    leased = leased_versions(node)
    held = sum((v.allocated for v in node.catalog.versions() if v.id in leased), Space())
    reserved = sum((reservation.space for reservation in node.catalog.reservations()), Space())
    return InsufficientStorage(
        "cache",
        subject,
        f"it needs {_show(goal)} (1.2 times its size); {_show(free)} may still be used, evicting all that is unused "
        f"would free {_show(made.freed)}, {_show(reserved)} are promised to other flights and {_show(held)} are leased",
        "release leases (dsctl lease ls), raise --capacity, or use a root on a larger filesystem",
    )


def check_directories(disk: Disk, totals: Totals, subject: str) -> None:
    """Raises InsufficientStorage if one of the dataset's directories is larger than the filesystem can hold."""
    limit = largest_directory(disk)
    if limit is not None and totals.largest_directory > limit:
        raise InsufficientStorage(
            "cache",
            subject,
            f"one of its directories has names of {totals.largest_directory} bytes in all, and a directory of this "
            f"{disk.kind} filesystem holds about {limit}",
            "spread the source's files over more directories, or use a root on XFS",
        )


def is_promised(node: Node, flight: str, need: Space) -> bool:
    """Whether the flight was promised at least so much when it was admitted."""
    if is_free(node.admission(flight)):
        return False
    return any(promise.flight == flight and promise.space.covers(need) for promise in node.catalog.reservations())


def could_fit(node: Node, needs: Mapping[str, Space]) -> bool:
    """Whether the flights' needs would fit 1.2 times if everything that is here could be evicted, leased or not."""
    flights = [promise.flight for promise in node.catalog.reservations()]
    staged = sum((told(node, flight) for flight in flights), Space())
    everything = sum((version.allocated for version in node.catalog.versions()), Space())
    goal = sum(needs.values(), Space()).scaled(HEADROOM)
    return (headroom(node, flights, staged) + everything).covers(goal)


def drop_dead(node: Node, decision: Decision) -> None:
    """Drops what was promised to flights that were killed; readers see it after the decision's end."""
    for reservation in node.catalog.reservations():
        if is_free(node.lock(reservation.flight)) and is_free(node.admission(reservation.flight)):
            decision.release(reservation.flight)


def clear_abandoned(node: Node, keep: Collection[str]) -> bool:
    """Inside a decision: moves what killed flights but those in `keep` left into the trash; whether there was any."""
    return sum(set_aside(node, folder) for folder in os.listdir(node.staging) if folder not in keep) > 0


def _show(space: Space) -> str:
    return f"{space.bytes / 1e6:,.1f} MB and {space.inodes:,} inodes"
