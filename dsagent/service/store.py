"""`store check`, `store forget` and `store prune`: looking after a store."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from dsagent.core.datasets import ALGORITHM
from dsagent.core.entries import Entry
from dsagent.core.errors import BadStore, UsageError, show_path
from dsagent.core.layout import (
    BUNDLES,
    POINTER_KEY,
    SHARDS,
    STAMPS,
    bundle_key,
    manifest_key,
    shard_key,
)
from dsagent.core.manifest import Bundle, Manifest
from dsagent.core.ports import Location, Store, StoredObject
from dsagent.engine.check_store import CheckBundle, file_checks
from dsagent.engine.crew import Crew
from dsagent.engine.manifests import read_checked, read_manifest
from dsagent.service.listing import manifests_by_age, open_store, stored_versions
from dsagent.service.node import Meter, Opens, step
from dsagent.service.origins import current_version
from dsagent.service.pack import PRUNE_GRACE_SECONDS
from dsagent.service.results import ForgetResult, PruneResult, StoreCheckResult, StoreProblem

JOBS_AHEAD = 64
NAMED_FILES = 10  # of those that one bad frame concerns
DELETED_AT_ONCE = 20
# Where stores that are directories have files that are being written.
SPOOLS = "tmp/"


def check(open_: Opens, meter: Meter, workers: int, location: Location) -> StoreCheckResult:
    """Re-reads every manifest and bundle of a store, and every file in them; raises BadStore if there is no store."""
    started = time.perf_counter()
    step("check")
    dataset = open_store(open_, location)
    store = open_.store(location)
    found = _Found()
    versions = stored_versions(store)
    _check_pointer(store, versions, found)
    manifests = list(_readable(store, versions, found))
    bundles = {bundle.digest: bundle for manifest in manifests for bundle in manifest.bundles}
    with Crew(workers, open_, meter.advance) as crew:
        crew.start()
        meter.start("check", location.url, sum(bundle.stored for bundle in bundles.values()), 0)
        _check_bundles(location, bundles.values(), crew, found)
        for manifest in manifests:
            _check_files(store, manifest, crew, found)
        meter.stop()
    return StoreCheckResult(
        dataset=dataset,
        versions=len(versions),
        bundles=len(bundles),
        bytes=sum(bundle.stored for bundle in bundles.values()),
        bad=found.problems,
        seconds=time.perf_counter() - started,
    )


def forget(
    open_: Opens, location: Location, keep_last: int | None, older_than: float | None, dry_run: bool
) -> ForgetResult:
    """Drops versions from a store: those that are not among the `keep_last` newest and older than `older_than`
    seconds, whichever is given. The current version always stays. Their bundles stay until `prune`.

    Raises UsageError if neither is given, and BadStore.
    """
    if keep_last is None and older_than is None:
        raise UsageError("forget", location.url, "nothing says which versions", "give --keep-last or --older-than")
    step("forget")
    dataset = open_store(open_, location)
    store = open_.store(location)
    newest_first = manifests_by_age(store)
    current = _current(store)
    before = time.time() - (older_than or 0)
    dropped = [
        manifest
        for index, manifest in enumerate(newest_first)
        if manifest.version != current and index >= (keep_last or 0) and _created(manifest) <= before
    ]
    if not dry_run:
        for manifest in dropped:
            _drop(store, manifest)
    return ForgetResult(dataset, [m.version for m in dropped], len(newest_first) - len(dropped), dry_run)


def prune(open_: Opens, location: Location, dry_run: bool) -> PruneResult:
    """Deletes what no manifest names and what is older than the grace of 7 days; safe beside running packs.

    A pack makes each bundle it refers to young before it writes its manifest. So what is old is listed first, the
    manifests are read then, and just before deleting a few the ages are looked at again. Raises BadStore, and
    deletes nothing, if a manifest cannot be read.
    """
    step("prune")
    dataset = open_store(open_, location)
    store = open_.store(location)
    listed = list(_prunable(store))
    named = _named(store)
    unnamed = [found for found in listed if found.key not in named]
    deleted = [found for found in unnamed if _is_old(found)]
    if not dry_run:
        deleted = [found for few in _cut(deleted, DELETED_AT_ONCE) for found in _delete(store, few)]
    freed = sum(found.size for found in deleted)
    return PruneResult(dataset, [found.key for found in deleted], freed, len(unnamed) - len(deleted), dry_run)


@dataclass
class _Found:
    """What is wrong with a store, and the files that were checked already: versions share bundles."""

    problems: list[StoreProblem] = field(default_factory=list)
    checked: set[int] = field(default_factory=set)

    def add(self, key: str, problem: str) -> None:
        """Adds a problem."""
        self.problems.append(StoreProblem(key, problem))

    def unchecked(self, entries: Iterable[Entry], bundles: tuple[Bundle, ...]) -> Iterator[Entry]:
        """Those of `entries` that no version before had at the same place."""
        for entry in entries:
            place = hash((bundles[entry.bundle].digest if bundles else "", entry.offset, entry.content, entry.size))
            if place not in self.checked:
                self.checked.add(place)
                yield entry


def _check_pointer(store: Store, versions: list[str], found: _Found) -> None:
    try:
        current = _current(store)
    except BadStore as error:
        found.add(POINTER_KEY, error.cause)
        return
    if current and current not in versions:
        found.add(POINTER_KEY, f"it names {current}, of which there is no manifest")


def _readable(store: Store, versions: list[str], found: _Found) -> Iterator[Manifest]:
    for version in versions:
        try:
            yield read_manifest(store, version)
        except BadStore as error:
            found.add(manifest_key(version), error.cause)


def _check_bundles(location: Location, bundles: Iterable[Bundle], crew: Crew, found: _Found) -> None:
    jobs = ((bundle, CheckBundle(location, bundle.digest, bundle.stored)) for bundle in bundles)
    for bundle, result in crew.in_order(jobs, JOBS_AHEAD):
        if result.value:
            found.add(bundle_key(bundle.digest), result.value)


def _check_files(store: Store, manifest: Manifest, crew: Crew, found: _Found) -> None:
    entries = found.unchecked(read_checked(store, manifest), manifest.bundles)
    jobs = ((job, job) for job in file_checks(store.location, manifest.bundles, entries))
    try:
        for job, result in crew.in_order(jobs, JOBS_AHEAD):
            if result.value:
                names = ", ".join(map(show_path, result.value[:NAMED_FILES]))
                problem = f"{len(result.value)} files differ from what {manifest.version} says: {names}"
                found.add(bundle_key(job.bundle), problem)
    except BadStore as error:
        found.add(manifest_key(manifest.version), f"{error.subject}: {error.cause}")


def _current(store: Store) -> str:
    return current_version(store) if store.find(POINTER_KEY) is not None else ""


def _created(manifest: Manifest) -> float:
    return datetime.fromisoformat(manifest.created).timestamp()


def _drop(store: Store, manifest: Manifest) -> None:
    """Deletes a version's manifest and stamps, unless a pack makes it the current one meanwhile."""
    key = manifest_key(manifest.version)
    data = store.read(key)
    store.delete(key)
    if _current(store) == manifest.version:
        store.create(key, data)
        return
    for stamps in [found.key for found in store.entries(STAMPS) if _stamped(found.key) == manifest.version]:
        store.delete(stamps)


def _prunable(store: Store) -> Iterator[StoredObject]:
    for prefix in (BUNDLES, SHARDS, STAMPS, SPOOLS):
        yield from store.entries(prefix)


def _cut(some: list[StoredObject], length: int) -> Iterator[list[StoredObject]]:
    for at in range(0, len(some), length):
        yield some[at : at + length]


def _delete(store: Store, some: list[StoredObject]) -> list[StoredObject]:
    """Deletes those of `some` that are still old; returns them."""
    keys = {found.key for found in some}
    old = [found for found in _prunable(store) if found.key in keys and _is_old(found)]
    for found in old:
        store.delete(found.key)
    return old


def _named(store: Store) -> set[str]:
    """The keys that the manifests name, stamps included."""
    versions = stored_versions(store)
    named = {found.key for found in store.entries(STAMPS) if _stamped(found.key) in versions}
    for version in versions:
        manifest = read_manifest(store, version)
        named.update(bundle_key(bundle.digest) for bundle in manifest.bundles)
        named.update(shard_key(shard.digest) for shard in manifest.shards)
    return named


def _stamped(key: str) -> str:
    """The version that stamps belong to."""
    return f"{ALGORITHM}:{key.removeprefix(STAMPS).partition('-')[0]}"


def _is_old(found: StoredObject) -> bool:
    return time.time() - found.modified > PRUNE_GRACE_SECONDS
