"""From keys in the order of an object store to stamps in path order."""

import re
from collections.abc import Iterable, Iterator

from dsagent.core.entries import DIRECTORY, FILE, Stamp

_BELOW_SLASH = re.compile(rb"[\x00-\x2e]")

Record = tuple[bytes, int, int, bytes]
"""Path (with a trailing slash: a folder), size, time of change in ns, ETag."""


class KeyTree:
    """Turns keys in path order into stamps of files and of the directories above them."""

    def __init__(self) -> None:
        self.bad: list[bytes] = []
        self.is_missing = True
        self._directory = b""  # the one whose entries come now
        self._latest = b""  # what was given last

    def stamps(self, records: Iterable[Record]) -> Iterator[Stamp]:
        """The stamps of records in path order, each folder before what it holds."""
        for path, size, modified, etag in records:
            self.is_missing = False
            parent, _, name = path.rpartition(b"/")
            if parent != self._directory:
                yield from self._enter(parent)
            if not name:
                continue
            if path == self._latest:
                self.bad.append(path)
            self._latest = path
            yield Stamp(path, FILE, False, size, modified, etag)

    def _enter(self, directory: bytes) -> Iterator[Stamp]:
        end = 0
        while end != len(directory):
            end = directory.find(b"/", end + 1)
            end = len(directory) if end < 0 else end
            above = directory[:end]
            if (self._directory + b"/").startswith(above + b"/"):
                continue
            if above == self._latest:
                self.bad.append(above)
            self._latest = above
            yield Stamp(above, DIRECTORY, False, 0, 0, b"")
        self._directory = directory


def in_path_order(records: Iterable[Record], held_back: bytes = b"") -> Iterator[Record]:
    """Brings (path, size, modified, ETag), which come in the order of their bytes, into path order.

    The two differ where a name goes on with a byte below the slash: "a.txt" comes before "a/b". Such a record
    is held back, in about 130 bytes, until no path under "a/" can follow; all are up to the path `held_back`.
    """
    held: list[bytes] = []
    reach = held_back
    for record in records:
        path = record[0]
        if held and path > reach:
            held.sort()
            yield from map(_unpacked, held)
            held.clear()
            reach = b""
        below = _BELOW_SLASH.search(path)
        if below:
            reach = max(reach, path[: below.start()] + b"/\xff")
        if below or held or path <= reach:
            held.append(_packed(record))
        else:
            yield record
    held.sort()
    yield from map(_unpacked, held)


def _packed(record: Record) -> bytes:
    path, size, modified, etag = record
    order = path.removesuffix(b"/").replace(b"/", b"\0")
    # A folder's marker sorts before a file of the same name.
    return b"%b\0\0%b %d %d %b" % (order, b"/" if path.endswith(b"/") else b"f", size, modified, etag)


def _unpacked(packed: bytes) -> Record:
    order, _, rest = packed.partition(b"\0\0")
    kind, size, modified, etag = rest.split(b" ", 3)
    return order.replace(b"\0", b"/") + (b"/" if kind == b"/" else b""), int(size), int(modified), etag
