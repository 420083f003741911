"""`evict`: removes versions that nobody uses, one dataset's or as many as a size asks for."""

from collections.abc import Sequence

from dsagent.core.errors import InsufficientStorage, InUse
from dsagent.core.eviction import Evicted, Plan
from dsagent.core.ports import CachedVersion
from dsagent.core.space import Space
from dsagent.service import recovery, space
from dsagent.service.leases import end_named, leases_by_version
from dsagent.service.node import Node, step
from dsagent.service.removal import empty_trash, freed_by, remove
from dsagent.service.results import EvictResult


def evict(node: Node, reference: str, force: bool, dry_run: bool) -> EvictResult:
    """Removes `name@version`, or all versions of `name`; raises NotCached, and InUse if one has a lease.

    `force` removes versions with leases by time too, but never one that a process or pod uses.
    """
    if dry_run:
        versions = _evictable(node, reference, force)
        return _result(versions, freed_by(node, versions), dry_run)
    recovery.recover(node)
    node.find(reference)  # a decision would make a root that is not there
    step("evict")
    with node.catalog.decide() as decision:
        versions = _evictable(node, reference, force)
        freed = freed_by(node, versions)
        end_named(node, versions)
        remove(node, decision, versions)
    empty_trash(node)
    return _result(versions, freed, dry_run)


def evict_need(node: Node, size: int, dry_run: bool) -> EvictResult:
    """Removes unused versions, longest unused first, until `size` bytes may be used.

    What killed flights left goes before any version does. Raises InsufficientStorage, and evicts nothing, if all
    unused versions together are not enough.
    """
    if dry_run:
        plan = _plan(node, size)
        return _result(plan.versions, plan.freed, dry_run)
    recovery.recover(node)
    node.prepare()
    step("evict")
    with node.catalog.decide() as decision:
        space.drop_dead(node, decision)
    while True:
        with node.catalog.decide() as decision:
            abandoned = not _is_free(node, size) and space.clear_abandoned(node, ())
            plan = Plan((), Space(), enough=True) if abandoned else _plan(node, size)
            remove(node, decision, plan.versions)
        empty_trash(node)
        if not abandoned:
            return _result(plan.versions, plan.freed, dry_run)


def _evictable(node: Node, reference: str, force: bool) -> list[CachedVersion]:
    newest = node.find(reference)
    versions = [newest] if "@" in reference else node.versions_of(newest.dataset)
    leases = leases_by_version(node)
    held = [info for version in versions for info in leases.get(version.id, [])]
    if force:
        held = [info for info in held if info.expires is None]
    if held:
        raise InUse(
            "evict",
            reference,
            f"it is in use by {', '.join(sorted({info.owner for info in held}))}",
            "wait for the processes that use it: --force ends leases by time only"
            if force
            else "see dsctl lease ls; --force ends leases by time, but not those of processes",
        )
    return versions


def _is_free(node: Node, size: int) -> bool:
    return space.headroom(node).bytes >= size


def _plan(node: Node, size: int) -> Plan:
    if _is_free(node, size):
        return Plan((), Space(), enough=True)
    plan = space.room_for(node, Space(size - space.headroom(node).bytes), ())
    if not plan.enough:
        raise _shortage(node, size, plan)
    return plan


def _shortage(node: Node, size: int, plan: Plan) -> InsufficientStorage:
    free, leases = space.headroom(node), leases_by_version(node)
    leased = sum((v.allocated for v in node.catalog.versions() if v.id in leases), Space())
    reserved = sum((reservation.space for reservation in node.catalog.reservations()), Space())
    return InsufficientStorage(
        "free",
        f"{size} bytes in {node.root}",
        f"{free.bytes} bytes and {free.inodes} inodes may be used, evicting all that is unused would free "
        f"{plan.freed.bytes} and {plan.freed.inodes}, {reserved.bytes} and {reserved.inodes} are reserved, "
        f"{leased.bytes} and {leased.inodes} are leased",
        "release leases (dsctl lease ls), raise --capacity, or use a root on a larger filesystem",
    )


def _result(versions: Sequence[CachedVersion], freed: Space, dry_run: bool) -> EvictResult:
    evicted = [Evicted(str(v.dataset), v.version, v.allocated.bytes) for v in versions]
    return EvictResult(evicted, freed.bytes, dry_run)
