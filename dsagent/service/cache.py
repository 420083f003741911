"""`cache`: the whole life of a caching, from the request to the path."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from dsagent.core.datasets import check_version
from dsagent.core.errors import DigestMismatch, NotCached, UsageError
from dsagent.core.eviction import Evicted
from dsagent.core.ports import CachedVersion
from dsagent.core.space import HEADROOM, Space
from dsagent.engine.fetch import Donor, Fetch, Fetched
from dsagent.engine.manifests import read_manifest
from dsagent.engine.staging import Staging
from dsagent.service.flight import Flight, flight
from dsagent.service.leases import add_lease, hold
from dsagent.service.node import Node, step
from dsagent.service.origins import CacheRequest, Origin, new_space, resolve
from dsagent.service.pack import pack_cached
from dsagent.service.publish import publish, renew_stamps
from dsagent.service.recovery import recover
from dsagent.service.removal import empty_trash, set_aside
from dsagent.service.results import CachePlan, CacheResult, Outcome
from dsagent.service.space import check_directories, headroom, is_promised, reserve, room_for, shortage


class _Present(NamedTuple):
    """A version that is on the disk now, and how it came there."""

    version: CachedVersion
    outcome: Outcome = "hit"
    fetched: Fetched = Fetched(1)
    evicted: Sequence[Evicted] = ()


T = TypeVar("T")


def cache(node: Node, request: CacheRequest) -> CacheResult:
    """Makes a dataset present, verified and read-only on this node.

    Raises SourceError, SourceChanged, BadStore, DigestMismatch, InsufficientStorage, NotPermitted, UsageError.
    """
    result, lease = cache_and(node, request, partial(_lease, node, request))
    return replace(result, lease=lease)


def cache_and(node: Node, request: CacheRequest, take: Callable[[CachedVersion], T]) -> tuple[CacheResult, T]:
    """Like `cache`; `take` leases the version, and raises NotCached if it was evicted before that."""
    started = time.perf_counter()
    recover(node)
    step("resolve")
    origin = resolve(node, request)
    result, taken = bring(node, request, origin, take)
    return replace(result, seconds=time.perf_counter() - started), taken


def bring(
    node: Node, request: CacheRequest, origin: Origin, take: Callable[[CachedVersion], T]
) -> tuple[CacheResult, T]:
    """Makes what the request's origin has present, and takes it as `take` does."""
    started = time.perf_counter()
    while True:
        step("compare")
        cached = node.versions_of(origin.key)
        version = origin.hit(cached)
        found = _Present(version) if version else _fly(node, origin, request, cached)
        try:
            taken = take(found.version)
            if request.pack_to:
                pack_cached(node, found.version, request.pack_to)
        except NotCached:  # evicted after it was found and before it was leased
            continue
        return _result(node, origin, found, time.perf_counter() - started), taken


def plan_cache(node: Node, request: CacheRequest) -> CachePlan:
    """What `cache` would do, without doing it; files whose stamps changed count as changed."""
    origin = resolve(node, request)
    cached = node.versions_of(origin.key)
    version = origin.hit(cached)
    if version:
        return CachePlan(str(origin.key), version.version, "hit", version.files, version.bytes, 0, ())
    need = new_space(origin, _donor(node, cached), node.disk.measure().block)
    missing = need.scaled(HEADROOM) - headroom(node)
    evicted: list[Evicted] = []
    if not Space().covers(missing):
        plan = room_for(node, missing, [cached[0].id] if cached else [])
        if not plan.enough:
            raise shortage(node, str(origin.key), need.scaled(HEADROOM), plan, headroom(node))
        evicted = [Evicted(str(v.dataset), v.version, v.allocated.bytes) for v in plan.versions]
    outcome: Outcome = "updated" if cached else "fetched"
    files, size, goal = origin.totals.files, origin.totals.bytes, need.scaled(HEADROOM).bytes
    return CachePlan(str(origin.key), origin.version, outcome, files, size, goal, evicted)


def _fly(node: Node, origin: Origin, request: CacheRequest, before: Sequence[CachedVersion]) -> _Present:
    """Fetches, or finds that another process just did."""
    subject = str(origin.key)
    node.prepare()
    with flight(node, origin.flight, subject, origin.totals) as flying:
        cached = node.versions_of(origin.key)
        version = _arrived(before, cached, origin) if flying.waited else origin.hit(cached)
        if version is None and cached and cached[0].source != origin.url and not request.replace_source:
            version = _same_content(origin, cached, flying)
        if version:
            return _Present(version)
        with _held_donor(node, cached) as donor:
            return _fetch(node, origin, request, cached, donor, flying)


def _fetch(
    node: Node,
    origin: Origin,
    request: CacheRequest,
    cached: Sequence[CachedVersion],
    donor: Donor | None,
    flying: Flight,
) -> _Present:
    step("reserve")
    disk = node.disk.measure()
    check_directories(disk, origin.totals, str(origin.key))
    need = _need(node, origin, donor, disk.block)
    evicted: list[Evicted] = []
    if not is_promised(node, flying.id, need):
        evicted = reserve(node, {flying.id: need}, str(origin.key), [cached[0].id] if donor else [])
    step("stage")
    _clear_older(node, flying.id)
    staging = Staging(node.staging / flying.id, node.mount_token(str(node.root)))
    local = node.open.local_store(str(staging.manifest))
    fetch = Fetch(staging, local, donor, flying.crew, disk.block)
    step("fetch")
    node.meter.start("cache", str(origin.key), origin.totals.bytes, origin.totals.files)
    manifest = origin.fetch(fetch)
    node.meter.stop()
    if request.version and manifest.version != check_version(request.version):
        raise DigestMismatch("cache", origin.url, f"it is {manifest.version}, not {request.version}", "omit --version")
    existing = next((version for version in cached if version.version == manifest.version), None)
    if existing:
        version = renew_stamps(node, existing, flying.id, staging, origin.url, origin.fingerprint)
        return _Present(version, "hit", fetch.result, evicted)
    step("commit")
    version = publish(node, flying.id, staging, origin, manifest, fetch.result, cached[0] if donor else None)
    return _Present(version, "updated" if donor else "fetched", fetch.result, evicted)


def _clear_older(node: Node, flight: str) -> None:
    """Removes what a killed flight for another version of the same dataset left: nobody will resume it."""
    dataset = flight.rpartition(".")[0]
    others = [
        folder for folder in os.listdir(node.staging) if folder != flight and folder.rpartition(".")[0] == dataset
    ]
    if sum(set_aside(node, folder) for folder in others):
        empty_trash(node)


def _need(node: Node, origin: Origin, donor: Donor | None, block: int) -> Space:
    """What to promise: the exact need beside a donor takes a reading of both, so only where space is short."""
    whole = new_space(origin, None, block)
    if donor is None or headroom(node, (origin.flight,)).covers(whole.scaled(HEADROOM)):
        return whole
    return new_space(origin, donor, block)


def needed(node: Node, origin: Origin) -> tuple[Space, list[str]]:
    """What a flight will be promised, and the ids of the versions that it links from."""
    block = node.disk.measure().block
    with _held_donor(node, node.versions_of(origin.key)) as donor:
        return _need(node, origin, donor, block), [donor.id] if donor else []


def _arrived(before: Sequence[CachedVersion], now: Sequence[CachedVersion], origin: Origin) -> CachedVersion | None:
    """What the flight has published that this process waited for: the same listing, so a hit, however young."""
    known = {version.id for version in before}
    fresh = [version for version in now if version.id not in known and version.source == origin.url]
    return fresh[0] if fresh else origin.hit(now)


def _same_content(origin: Origin, cached: Sequence[CachedVersion], flying: Flight) -> CachedVersion:
    version = origin.same_content(cached, flying.crew)
    if version is None:
        raise UsageError(
            "cache",
            f"{origin.url} as {origin.key}",
            f"{origin.key} came from {cached[0].source}, and the content differs",
            "give another name with --name, or replace it with --replace-source",
        )
    return version


def _donor(node: Node, cached: Sequence[CachedVersion]) -> Donor | None:
    if not cached:
        return None
    store = node.manifest_store(cached[0])
    return Donor(cached[0].id, str(node.data(cached[0])), store, read_manifest(store, cached[0].version))


@contextlib.contextmanager
def _held_donor(node: Node, cached: Sequence[CachedVersion]) -> Iterator[Donor | None]:
    """The newest version as donor, under a lease, so that no one evicts it meanwhile."""
    if not cached:
        yield None
        return
    try:
        lease = hold(node, cached[0], "update")
    except NotCached:  # just evicted
        yield None
        return
    try:
        yield _donor(node, cached)
    finally:
        lease.release()


def _lease(node: Node, request: CacheRequest, version: CachedVersion) -> str:
    step("lease")
    if request.lease_owner is None:
        return ""
    return add_lease(node, version, request.lease_owner, request.lease_seconds).id


def present(node: Node, origin: Origin, version: CachedVersion) -> CacheResult:
    """The result of a request whose version is here already."""
    return _result(node, origin, _Present(version), 0.0)


def _result(node: Node, origin: Origin, present: _Present, seconds: float) -> CacheResult:
    version, fetched = present.version, present.fetched
    node.used_now(version)
    return CacheResult(
        dataset=str(version.dataset),
        version=version.version,
        path=str(node.data(version)),
        outcome=present.outcome,
        files=version.files,
        bytes=version.bytes,
        fetched_bytes=fetched.fetched_bytes,
        reused_files=fetched.reused_files,
        evicted=present.evicted,
        skipped_special=origin.skipped_special,
        lease="",
        seconds=seconds,
    )
