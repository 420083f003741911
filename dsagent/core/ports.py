"""What the rules need from the world. Adapters implement these; tests/fakes has in-memory implementations."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import BinaryIO, NamedTuple, Protocol

from dsagent.core.datasets import DatasetKey
from dsagent.core.entries import Stamp
from dsagent.core.space import Disk, Space

BENEATH = "beneath"
"""The option of a directory's location that names the folder out of which it must not lead. An agent sets it; nobody
who asks can.
"""


class Location(NamedTuple):
    """Where a source or store is: a path or URL without secrets, and the options that open it (kept out of repr)."""

    url: str
    options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Location(url={self.url!r})"


class Source(Protocol):
    """A tree of files to read. Instances may be used from several threads."""

    @property
    def location(self) -> Location:
        """Its canonical location."""

    @property
    def remote(self) -> bool:
        """Whether every request crosses a network, so that many should be under way at once."""

    def scan(self, special: list[bytes] | None = None) -> Iterator[Stamp]:
        """Stamps of all entries in path order, without the root.

        Sockets, fifos, devices and symlinks that leave the tree are an error, or are left out and appended to
        `special` if it is given. Raises SourceError (it names every entry concerned) and NotPermitted.
        """

    def chunks(self, stamp: Stamp) -> Iterator[bytes]:
        """The content of one file in pieces of 8 MiB, the last one shorter; of an empty file none.

        Raises SourceChanged if the file is not, before and after the reading, what the stamp says, and SourceError
        if it cannot be read.
        """


class StoredObject(NamedTuple):
    """One object of a store; `modified` is Unix time in seconds."""

    key: str
    size: int
    modified: float


class Store(Protocol):
    """A place that holds objects by key. Instances may be used from several threads.

    All methods raise NotPermitted and InsufficientStorage where the storage says so, and BadStore for other failures.
    """

    @property
    def location(self) -> Location:
        """Its canonical location."""

    @property
    def remote(self) -> bool:
        """Whether every request crosses a network."""

    def find(self, key: str) -> bytes | None:
        """The whole object, or None if there is none."""

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """`length` bytes from `offset`, or fewer where the object ends; raises BadStore if there is no such object."""

    def create(self, key: str, data: bytes | BinaryIO) -> bool:
        """Writes a new object, whole or not at all; False, and nothing written, if the key is taken already."""

    def replace(self, key: str, data: bytes, expected: bytes | None) -> bool:
        """Writes an object whole if its content still is `expected` (None: it is not there); False if it is not.

        Only the store's pointer and stamps are ever replaced.
        """

    def spool(self) -> BinaryIO:
        """A new temporary file from which `create` can take a large object, removed when closed. It is unbuffered:
        `write` may take less than it is given.
        """

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        """All objects whose key begins with `prefix`, a folder name with slash."""

    def refresh(self, key: str) -> None:
        """Makes the object as young as a new one; raises BadStore if there is no such object."""

    def delete(self, key: str) -> None:
        """Removes the object; nothing happens if there is none."""


class CachedVersion(NamedTuple):
    """A version on the node's disk.

    `allocated` is what it took when published, `shares` whether files of it are hard links of another version.
    `fingerprint` is empty if the listing it came from was too young to be trusted. `synced`: its bytes are on the
    device; otherwise they can be trusted only while `mount` names the mount they were written through.
    `last_used` comes from the disk and is not stored in the catalog.
    """

    id: str
    dataset: DatasetKey
    version: str
    source: str
    fingerprint: str
    files: int
    bytes: int
    allocated: Space
    published: datetime
    last_used: datetime
    synced: bool = False
    mount: str = ""
    shares: bool = False


class Reservation(NamedTuple):
    """Space promised to a flight until it ends."""

    flight: str
    space: Space


class Decision(Protocol):
    """An open decision: what it writes appears at its end, or not at all."""

    def add(self, version: CachedVersion) -> None:
        """Adds a version or replaces the one with its id."""

    def mark_synced(self, version_ids: Iterable[str]) -> None:
        """Versions are on the device; those that are gone meanwhile are left out."""

    def remove(self, version_id: str) -> None:
        """Forgets a version; nothing happens if there is none."""

    def reserve(self, reservation: Reservation) -> None:
        """Sets what is promised to a flight."""

    def release(self, flight: str) -> None:
        """Drops the promise to a flight; nothing happens if there is none."""


class Catalog(Protocol):
    """What is on the node's disk. Raises UnfitRoot if it cannot be read or written."""

    @property
    def engine(self) -> str:
        """What keeps it, in words."""

    def versions(self, dataset: DatasetKey | None = None) -> list[CachedVersion]:
        """All versions, or all of one dataset, oldest published first."""

    def ids(self) -> set[str]:
        """The ids of all versions."""

    def unsynced(self) -> list[CachedVersion]:
        """The versions that are not known to be on the device, oldest published first."""

    def reservations(self) -> list[Reservation]:
        """All promises."""

    def decide(self) -> AbstractContextManager[Decision]:
        """The lock on decisions: one process at a time is inside; readers see what was before until it ends."""

    def lock(self) -> AbstractContextManager[None]:
        """The same lock, for what changes leases only."""


class DiskSpace(Protocol):
    """The filesystem of the root."""

    def measure(self) -> Disk:
        """What there is now."""


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """The time in UTC."""
