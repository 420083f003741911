"""A source in memory."""

import threading
from collections.abc import Iterator
from itertools import count

from dsagent.core.entries import DIRECTORY, FILE, Stamp, path_order
from dsagent.core.errors import SourceChanged, SourceError
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.ports import Location

# Old enough to be trusted by any scan, whatever the clock.
FIRST_MTIME_NS = 1_000_000_000 * 1_000_000_000


class MemorySource:
    """A tree that tests write; every write gives the file a new stamp."""

    remote = False

    def __init__(self, url: str = "memory-source") -> None:
        self.location = Location(url)
        self.unreadable: set[bytes] = set()
        self.read_paths: list[bytes] = []
        self._entries: dict[bytes, tuple[Stamp, bytes]] = {}
        self._lock = threading.Lock()
        self._writes = count()

    def write(self, path: bytes, data: bytes, executable: bool = False) -> None:
        number = next(self._writes)
        self.make_directory(path.rpartition(b"/")[0])
        stamp = Stamp(path, FILE, executable, len(data), FIRST_MTIME_NS + number, b"write %d" % number)
        self._entries[path] = stamp, data

    def make_directory(self, path: bytes) -> None:
        while path and path not in self._entries:
            self._entries[path] = Stamp(path, DIRECTORY, False, 0, 0, b""), b""
            path = path.rpartition(b"/")[0]

    def add_other(self, path: bytes, kind: str, token: bytes = b"") -> None:
        """A symlink, or with the kind "" something that cannot be kept."""
        self._entries[path] = Stamp(path, kind, False, 0, 0, token), b""

    def remove(self, path: bytes) -> None:
        del self._entries[path]

    def scan(self, special: list[bytes] | None = None) -> Iterator[Stamp]:
        stamps = [self._entries[path][0] for path in sorted(self._entries, key=path_order)]
        unfit = [stamp.path for stamp in stamps if not stamp.kind]
        if special is not None:
            special += unfit
        yield from (stamp for stamp in stamps if stamp.kind)
        if unfit and special is None:
            raise SourceError("keep all entries of", self.location.url, "it has special entries", "", unfit)

    def chunks(self, stamp: Stamp) -> Iterator[bytes]:
        assert stamp.kind == FILE
        with self._lock:
            self.read_paths.append(stamp.path)
        if stamp.path in self.unreadable:
            raise SourceError("read", self.location.url, "Permission denied", "", [stamp.path])
        data = self._current(stamp)
        for begin in range(0, stamp.size, FRAME_BYTES):
            yield data[begin : begin + FRAME_BYTES]
        self._current(stamp)

    def _current(self, stamp: Stamp) -> bytes:
        found, data = self._entries.get(stamp.path, (None, b""))
        if found != stamp:
            raise SourceChanged("read", self.location.url, "it changed while it was read", "", [stamp.path])
        return data
