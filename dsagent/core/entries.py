"""One entry of a dataset's tree, as a version records it and as a listing shows it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import xxhash

FILE = "f"
DIRECTORY = "d"
SYMLINK = "l"

DIGEST_BYTES = 16
NAME_MAX = 255  # Linux's limit for one name, in bytes
BLOCK = 4096

# An entry whose stamp is younger than this before its scan may change again without a new stamp.
SETTLED_NS = 2_000_000_000

NO_BUNDLE = -1


class Entry(NamedTuple):
    """A file, directory or symlink of a version.

    `path` is relative, without leading or trailing slash. `size` is in bytes and 0 unless it is a file; `mtime_ns`
    likewise. `content` is a file's xxh3-128 (16 bytes), a symlink's target, or empty for a directory. `bundle` is
    the index in the manifest's bundles (NO_BUNDLE: in none), `offset` where the file's data begin in the bundle's
    plain tar stream.
    """

    path: bytes
    kind: str
    executable: bool
    size: int
    mtime_ns: int
    content: bytes
    bundle: int = NO_BUNDLE
    offset: int = 0


class Stamp(NamedTuple):
    """What a listing alone tells of one entry.

    `token` is what changes when the content does: a symlink's target, an object's ETag and version id, a file's
    ctime. A stamp equal to an earlier settled one means that the content is the same.
    """

    path: bytes
    kind: str
    executable: bool
    size: int
    mtime_ns: int
    token: bytes


def path_order(path: bytes) -> bytes:
    """Sort key of a path: component by component, by raw bytes; the order of a depth-first walk."""
    return path.replace(b"/", b"\0")


def find_bad_path(paths: Sequence[bytes]) -> str | None:
    """Why one of `paths` cannot be an entry's path (absolute, empty part, '.', '..', NUL, name too long), or None."""
    # One search through all of them: a check path by path takes ten times as long.
    joined = b"/".join([b"", *paths, b""])
    if b"\0" in joined:
        return "a path contains a NUL byte"
    if b"//" in joined or b"/./" in joined or b"/../" in joined:
        return "a path is absolute or has an empty, '.' or '..' part"
    if max(map(len, joined.split(b"/"))) > NAME_MAX:
        return f"a name is longer than {NAME_MAX} bytes"
    return None


class Fingerprint:
    """xxh3-128 over all stamps, fed one by one in path order."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    def add(self, stamps: Iterable[Stamp]) -> None:
        """Adds stamps in path order."""
        self._hash.update(b"".join(map(_stamp_bytes, stamps)))

    def hexdigest(self) -> str:
        """The digest in hexadecimal."""
        return self._hash.hexdigest()


def _stamp_bytes(stamp: Stamp) -> bytes:
    path, kind, executable, size, mtime_ns, token = stamp
    return b"%d:%b%b%d %d %d %d:%b" % (len(path), path, kind.encode(), executable, size, mtime_ns, len(token), token)


def newest_ns(stamps: Iterable[Stamp]) -> int:
    """The latest time, as Unix time in ns, at which one of the files was changed as far as its stamp tells.

    A stamp can be trusted later only if that is SETTLED_NS before the scan that took it.
    """
    files = [stamp for stamp in stamps if stamp.kind == FILE]
    changed = (int(stamp.token) for stamp in files if stamp.token.isdigit())
    return max((max((stamp.mtime_ns for stamp in files), default=0), *changed), default=0)


def rounded(size: int) -> int:
    """`size` rounded up to whole blocks of 4 KiB."""
    return -(-size // BLOCK) * BLOCK
