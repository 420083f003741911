"""What the verbs return. Sizes are bytes, times are UTC; paths of entries are raw bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from dsagent.core.eviction import Evicted

Outcome = Literal["hit", "fetched", "updated"]


@dataclass(frozen=True)
class PackResult:
    """A version that a store holds now, and what was written for it."""

    dataset: str
    version: str
    files: int
    bytes: int
    bundles: int
    new_bundles: int
    stored_bytes: int
    skipped_special: int
    seconds: float


@dataclass(frozen=True)
class CacheResult:
    """A version that is present and verified at `path`. `bytes` and `files` are its own, `fetched_bytes` the plain
    bytes that were read from the source or store. `lease` is the id of the lease that was asked for, or empty.
    """

    dataset: str
    version: str
    path: str
    outcome: Outcome
    files: int
    bytes: int
    fetched_bytes: int
    reused_files: int
    evicted: Sequence[Evicted]
    skipped_special: int
    lease: str
    seconds: float


@dataclass(frozen=True)
class CachePlan:
    """What `cache --dry-run` would do. `needed_bytes`: 1.2 times what would be newly allocated."""

    dataset: str
    version: str
    outcome: Outcome
    files: int
    bytes: int
    needed_bytes: int
    evicted: Sequence[Evicted]


@dataclass(frozen=True)
class LeaseInfo:
    """Who uses what, until when. `expires` is None for a lease that its process holds."""

    id: str
    owner: str
    dataset: str
    version: str
    expires: datetime | None


@dataclass(frozen=True)
class GrantedLease(LeaseInfo):
    """A lease that an agent has just made. `file`: where a process is to take it over, below the root; None for a
    lease by time.
    """

    file: str | None


@dataclass(frozen=True)
class CachedInfo:
    """A version on this node."""

    dataset: str
    version: str
    files: int
    bytes: int
    allocated_bytes: int
    source: str
    published: datetime
    last_used: datetime
    leases: Sequence[LeaseInfo]
    path: str


@dataclass(frozen=True)
class StoredInfo:
    """A version in a store."""

    dataset: str
    version: str
    files: int
    bytes: int
    bundles: int
    stored_bytes: int
    created: str
    current: bool


@dataclass(frozen=True)
class DiskInfo:
    """The root's space. `capacity` is what the cache may use in all; inodes are 0 where the filesystem has no limit."""

    root: str
    filesystem: str
    capacity: int
    used: int
    reserved: int
    free: int
    total: int
    inodes_used: int
    inodes_reserved: int
    inodes_free: int
    inodes_total: int
    datasets: int


@dataclass(frozen=True)
class BadFile:
    """An entry that is not as its manifest says."""

    path: bytes
    problem: str


@dataclass(frozen=True)
class VerifyResult:
    """What a re-reading found; `repaired` counts the bad files that were fetched anew, `evicted` made room for them."""

    dataset: str
    version: str
    files: int
    bad: Sequence[BadFile]
    repaired: int
    evicted: Sequence[Evicted]
    seconds: float


@dataclass(frozen=True)
class EvictResult:
    """What was removed, or would be, and the bytes that frees."""

    evicted: Sequence[Evicted]
    freed_bytes: int
    dry_run: bool


@dataclass(frozen=True)
class DiffResult:
    """Paths of files and symlinks by which `b` differs from `a`."""

    a: str
    b: str
    added: Sequence[bytes]
    removed: Sequence[bytes]
    changed: Sequence[bytes]


@dataclass(frozen=True)
class StoreProblem:
    """Something in a store that is not as it should be; `key` is the object's."""

    key: str
    problem: str


@dataclass(frozen=True)
class StoreCheckResult:
    """What the re-reading of a whole store found."""

    dataset: str
    versions: int
    bundles: int
    bytes: int
    bad: Sequence[StoreProblem]
    seconds: float


@dataclass(frozen=True)
class ForgetResult:
    """Versions that a store no longer lists."""

    dataset: str
    forgotten: Sequence[str]
    kept: int
    dry_run: bool


@dataclass(frozen=True)
class PruneResult:
    """Objects of a store that no manifest names and that were old enough to be deleted."""

    dataset: str
    deleted: Sequence[str]
    freed_bytes: int
    kept_young: int
    dry_run: bool


@dataclass(frozen=True)
class LimitsInfo:
    """What all work of an agent shares. `bandwidth`: bytes a second from all sources together, 0 for no limit;
    `slots`: jobs at work at once; `tasks`: tasks whose data come at once.
    """

    bandwidth: int
    slots: int
    tasks: int


@dataclass(frozen=True)
class Finding:
    """One check of `doctor`."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    advice: str
