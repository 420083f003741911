"""The other verbs as functions: what is here, keeping it in order, leases and stores.

`root` and `agent` are as for `dsagent.cache`.
"""

from pathlib import Path

from dsagent.core.errors import UsageError
from dsagent.core.quantities import parse_size
from dsagent.entrypoints.library import (
    PathOrUrl,
    ProgressCallback,
    Size,
    StorageOptions,
    location,
    meter_for,
    verbs,
)
from dsagent.entrypoints.meters import NoMeter
from dsagent.service import diff as diffs
from dsagent.service import listing
from dsagent.service import store as stores
from dsagent.service.results import (
    CachedInfo,
    DiffResult,
    DiskInfo,
    EvictResult,
    Finding,
    ForgetResult,
    LeaseInfo,
    PruneResult,
    StoreCheckResult,
    StoredInfo,
    VerifyResult,
)
from dsagent.wiring import Wiring, default_workers


def ls(*, root: PathOrUrl | None = None, agent: str | None = None) -> list[CachedInfo]:
    """The datasets on this node."""
    return verbs(root, agent).ls()


def ls_store(store: PathOrUrl, *, storage_options: StorageOptions | None = None) -> list[StoredInfo]:
    """The versions in a store, newest first."""
    return listing.ls_store(Wiring(), location(store, storage_options))


def path(name: str, *, root: PathOrUrl | None = None, agent: str | None = None) -> Path:
    """Where `name` or `name@version` is. Without a lease it may be evicted: `cache` gives one."""
    return Path(verbs(root, agent).path(name))


def df(
    *,
    root: PathOrUrl | None = None,
    agent: str | None = None,
    capacity: Size | None = None,
    keep_free: Size | None = None,
) -> DiskInfo:
    """How much room there is."""
    return verbs(root, agent, NoMeter(), capacity, keep_free).df()


def verify(
    name: str,
    *,
    repair: bool = False,
    storage_options: StorageOptions | None = None,
    root: PathOrUrl | None = None,
    agent: str | None = None,
    progress: ProgressCallback | None = None,
) -> VerifyResult:
    """Re-reads every file of a dataset and compares it with the manifest; with `repair` fetches bad ones anew."""
    with meter_for(progress) as meter:
        options = tuple(sorted((storage_options or {}).items()))
        return verbs(root, agent, meter).verify(name, repair, options)


def evict(
    name: str | None = None,
    *,
    need: Size | None = None,
    force: bool = False,
    dry_run: bool = False,
    root: PathOrUrl | None = None,
    agent: str | None = None,
    capacity: Size | None = None,
    keep_free: Size | None = None,
) -> EvictResult:
    """Removes the dataset `name`, or those that are longest unused until `need` bytes are free.

    What a process uses is never removed; `force` ends leases by time.
    """
    if (name is None) == (need is None) or (need is not None and force):
        raise UsageError("evict", str(name or need), "give either a name, perhaps with force, or need")
    here = verbs(root, agent, NoMeter(), capacity, keep_free)
    if need is not None:
        return here.evict_need(parse_size(str(need)), dry_run)
    return here.evict(str(name), force, dry_run)


def diff(
    a: PathOrUrl,
    b: PathOrUrl,
    *,
    storage_options: StorageOptions | None = None,
    root: PathOrUrl | None = None,
    agent: str | None = None,
) -> DiffResult:
    """The files by which `b` differs from `a`; each is a source, a store or a cached dataset."""
    sides = [diffs.Side(place.url, place.options) for place in (location(one, storage_options) for one in (a, b))]
    return verbs(root, agent).diff(*sides)


def doctor(*, rebuild: bool = False, root: PathOrUrl | None = None, agent: str | None = None) -> list[Finding]:
    """Looks at the filesystem, limits and leftovers; `rebuild` makes the catalog anew."""
    return verbs(root, agent).doctor(rebuild)


def lease_add(
    name: str, owner: str, seconds: float = 7200, *, root: PathOrUrl | None = None, agent: str | None = None
) -> LeaseInfo:
    """Keeps a dataset from eviction for `seconds`, whatever becomes of this process."""
    return verbs(root, agent).add_lease(name, owner, seconds)


def lease_renew(
    wanted: str,
    owner: str | None = None,
    seconds: float = 7200,
    *,
    root: PathOrUrl | None = None,
    agent: str | None = None,
) -> LeaseInfo:
    """Lets a lease, named by its id or its dataset, end `seconds` from now."""
    return verbs(root, agent).renew_lease(wanted, owner, seconds)


def lease_release(
    wanted: str, owner: str | None = None, *, root: PathOrUrl | None = None, agent: str | None = None
) -> LeaseInfo:
    """Ends a lease, named by its id or its dataset."""
    return verbs(root, agent).release_lease(wanted, owner)


def lease_ls(*, root: PathOrUrl | None = None, agent: str | None = None) -> list[LeaseInfo]:
    """All leases."""
    return list(verbs(root, agent).leases())


def store_check(
    store: PathOrUrl, *, storage_options: StorageOptions | None = None, progress: ProgressCallback | None = None
) -> StoreCheckResult:
    """Re-reads all of a store and compares it with its manifests."""
    with meter_for(progress) as meter:
        return stores.check(Wiring(), meter, default_workers(), location(store, storage_options))


def store_forget(
    store: PathOrUrl,
    *,
    keep_last: int | None = None,
    older_than: float | None = None,
    dry_run: bool = False,
    storage_options: StorageOptions | None = None,
) -> ForgetResult:
    """Drops versions that are not among the `keep_last` newest and are older than `older_than` seconds."""
    return stores.forget(Wiring(), location(store, storage_options), keep_last, older_than, dry_run)


def store_prune(
    store: PathOrUrl, *, dry_run: bool = False, storage_options: StorageOptions | None = None
) -> PruneResult:
    """Deletes what no version of a store needs and what is older than 7 days."""
    return stores.prune(Wiring(), location(store, storage_options), dry_run)
