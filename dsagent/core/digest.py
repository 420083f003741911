"""The content digest of a tree: a Merkle digest that is computed while the entries stream by.

Each directory's digest is xxh3-128 over its children sorted by raw name bytes, each as
type byte, executable byte, size (u64 LE), name length (u32 LE), name, and then a file's digest (16 bytes), a
symlink's target (u32 LE length, bytes) or a directory's digest (16 bytes). The version is the root's digest.
"""

import struct
from collections.abc import Iterable

import xxhash

from dsagent.core.entries import DIRECTORY, FILE, Entry

_HEAD = struct.Struct("<cBQI")
_LENGTH = struct.Struct("<I")


class EntryOrderError(ValueError):
    """Entries are out of order, twice there, or below something that is no directory."""


class TreeDigest:
    """Takes entries in path order (depth first) and gives the root's digest.

    Raises EntryOrderError for an entry out of order or twice there, and for one whose parent is not a directory
    seen before: a symlink or file used as a directory.
    """

    def __init__(self) -> None:
        self._open: list[tuple[bytes, xxhash.xxh3_128]] = []
        self._directory = b""
        self._hash = xxhash.xxh3_128()
        self._last = b""

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries in path order."""
        for path, kind, executable, size, _mtime, content, _bundle, _offset in entries:
            parent, _, name = path.rpartition(b"/")
            while parent != self._directory:
                if not self._open:
                    raise EntryOrderError(f"{path!r} is out of order or lies below something that is no directory")
                self._close()
            if name <= self._last:
                raise EntryOrderError(f"{path!r} is out of order or listed twice")
            if kind == DIRECTORY:
                self._open.append((parent, self._hash))
                self._directory, self._hash, self._last = path, xxhash.xxh3_128(), b""
                continue
            self._last = name
            head = _HEAD.pack(kind.encode(), executable, size, len(name)) + name
            self._hash.update(head + content if kind == FILE else head + _LENGTH.pack(len(content)) + content)

    def digest(self) -> bytes:
        """The root's digest; no entries can be added afterwards."""
        while self._open:
            self._close()
        return self._hash.digest()

    def _close(self) -> None:
        digest = self._hash.digest()
        name = self._directory.rpartition(b"/")[2]
        self._directory, self._hash = self._open.pop()
        self._last = name
        self._hash.update(_HEAD.pack(b"d", 0, 0, len(name)) + name + digest)
