"""The cache of this node: its root, and what the verbs need to work on it."""

import contextlib
import fcntl
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import xxhash

from dsagent.core.bound_pods import MountedVersion
from dsagent.core.datasets import DatasetKey, split_reference
from dsagent.core.errors import NotCached, UsageError, local_error
from dsagent.core.ports import CachedVersion, Catalog, Clock, DiskSpace, Store
from dsagent.core.space import Limits
from dsagent.engine.crew import Gate, Opener, OpenGate

log = logging.getLogger("dsagent")


def step(name: str) -> None:
    """Says which step of a verb begins; the lines that `-v` shows."""
    log.info("step: %s", name)


class Opens(Opener, Protocol):
    """Opens stores of the root too."""

    def local_store(self, folder: str) -> Store:
        """A folder of the root with a version's manifest."""


class Meter(Protocol):
    """Where progress goes; its methods are called from several threads."""

    def start(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None:
        """A stretch of work begins; totals of 0 are unknown."""

    def advance(self, size: int, files: int) -> None:
        """So much was done since the last call."""

    def stop(self) -> None:
        """The stretch is over."""


def _nothing_mounted() -> Sequence[MountedVersion]:
    return ()


@dataclass(frozen=True)
class Node:
    """The root and its parts. Folders are made by the first write. `mounted`: the versions that pods have mounted; who
    decides does not if it raises.
    """

    root: Path
    catalog: Catalog
    disk: DiskSpace
    clock: Clock
    limits: Limits
    open: Opens
    meter: Meter
    workers: int
    mount_token: Callable[[str], str]
    sync: Callable[[str], None]
    gate: Gate = OpenGate()  # noqa: RUF009 - it has no state
    mounted: Callable[[], Sequence[MountedVersion]] = _nothing_mounted

    @property
    def versions(self) -> Path:
        """The folder of published versions."""
        return self.root / "versions"

    @property
    def staging(self) -> Path:
        """The folder of flights."""
        return self.root / "staging"

    @property
    def trash(self) -> Path:
        """The folder of what was evicted and is being deleted."""
        return self.root / "trash"

    @property
    def locks(self) -> Path:
        """The folder of locks and leases."""
        return self.root / "locks"

    @property
    def pods(self) -> Path:
        """The folder of what tasks use."""
        return self.root / "pods"

    def lock(self, flight: str) -> Path:
        """The lock file of a flight."""
        return self.locks / f"flight-{flight}"

    def admission(self, flight: str) -> Path:
        """The lock file of a flight that was promised its space and has not begun."""
        return self.locks / f"admitted-{flight}"

    def prepare(self) -> None:
        """Makes the folders of the root; raises NotPermitted or InsufficientStorage."""
        try:
            # The versions' folder last: where it is, the others are.
            for folder in (self.staging, self.trash, self.locks, self.versions):
                folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        except OSError as error:
            raise local_error("make", str(self.root), error) from error

    def folder(self, version: CachedVersion) -> Path:
        """A version's folder, with `manifest/` and `data/`."""
        dataset = version.dataset  # one parse of a path instead of four
        return Path(f"{self.root}/versions/{dataset.namespace}/{dataset.name}/{version.id}")

    def data(self, version: CachedVersion) -> Path:
        """Where a version's files are."""
        return self.folder(version) / "data"

    def manifest_store(self, version: CachedVersion) -> Store:
        """A version's manifest, shards and stamps."""
        return self.open.local_store(str(self.folder(version) / "manifest"))

    def shown(self, dataset: DatasetKey | None = None) -> list[CachedVersion]:
        """The versions, of all datasets or of one, whose bytes are sure, oldest published first: synced, or written
        through the present mount.
        """
        versions = self.catalog.versions(dataset)
        if all(version.synced for version in versions):
            return versions
        mount = self.mount_token(str(self.root))
        return [version for version in versions if version.synced or version.mount == mount]

    def versions_of(self, dataset: DatasetKey) -> list[CachedVersion]:
        """The versions of a dataset that are sure, newest published first."""
        return list(reversed(self.shown(dataset)))

    def find(self, reference: str) -> CachedVersion:
        """The version that a reference means, without `@version` the newest; raises NotCached, UsageError."""
        dataset, wanted = split_reference(reference)
        for version in self.versions_of(dataset):
            if wanted in (None, version.version):
                return version
        here = sorted({str(version.dataset) for version in self.shown()})
        hint = f"here are: {', '.join(here[:20])}" if here else "the cache is empty; dsctl cache SOURCE fills it"
        raise NotCached("find", reference, f"it is not in {self.root}", hint)

    def has(self, reference: str) -> bool:
        """Whether `reference` means a version that is here; what is no reference means none."""
        try:
            self.find(reference)
        except (NotCached, UsageError):
            return False
        return True

    def used_now(self, version: CachedVersion) -> None:
        """Remembers that a version was used: the modification time of its folder."""
        with contextlib.suppress(OSError):  # only the order of eviction depends on it
            os.utime(self.folder(version))


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.now(UTC)


def flight_id(dataset: DatasetKey, *parts: str) -> str:
    """The id of the flight for a version (or fingerprint) of a dataset: the same for all that need it."""
    digest = xxhash.xxh3_128_hexdigest("\0".join(parts).encode())[:24]
    return f"{dataset.namespace}.{dataset.name}.{digest}"


def new_id() -> str:
    """An opaque id."""
    return uuid.uuid4().hex[:16]


def is_free(lock: Path) -> bool:
    """Whether nobody holds a lock file; one that may not be looked at counts as held."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@contextlib.contextmanager
def held(lock: Path, waiting: Callable[[], None]) -> Iterator[int]:
    """Holds a lock file exclusively and gives its descriptor; calls `waiting` again and again until it is free.

    The file stays: removing it would let two processes hold two locks of one name.
    """
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
        yield fd
    finally:
        os.close(fd)
