"""Trees: making them, and saying what is in them without any of our own code. Paths may be longer than PATH_MAX."""

import hashlib
import os
import random
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20


class Seen(NamedTuple):
    """An entry as a reader sees it: `content` is a file's SHA-256 or a symlink's target."""

    kind: str
    executable: bool
    size: int
    mtime_ns: int
    content: bytes


Tree = dict[bytes, Seen]


def look(root: Path) -> Tree:
    """Everything below `root`."""
    return {path: _seen(parent, name, found) for path, parent, name, found in _walk(root)}


def without_times(tree: Mapping[bytes, Seen]) -> Tree:
    """The same, for comparing with what does not keep nanoseconds."""
    return {path: seen._replace(mtime_ns=0) for path, seen in tree.items()}


def inodes(root: Path) -> dict[bytes, int]:
    """The inode number of each regular file below `root`."""
    return {path: found.st_ino for path, _, _, found in _walk(root) if stat.S_ISREG(found.st_mode)}


def count_files(root: Path) -> int:
    """How many regular files there are now; the tree may be changing."""
    count, pending = 0, [root]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    else:
                        count += 1
        except FileNotFoundError:
            continue
    return count


def assert_published(data: Path, expected: Mapping[bytes, Seen]) -> None:
    """`data` is the tree that was expected, read-only."""
    assert_same(look(data), expected)
    for path, _, _, found in _walk(data):
        mode = stat.S_IMODE(found.st_mode)
        assert stat.S_ISLNK(found.st_mode) or mode in (0o444, 0o555), (path, oct(mode))
    assert stat.S_IMODE(data.stat().st_mode) == 0o555


def assert_same(found: Mapping[bytes, Seen], expected: Mapping[bytes, Seen]) -> None:
    """Two trees are the same; says only what differs, as trees are large."""
    differing = [
        (path[-80:], found.get(path), expected.get(path))
        for path in sorted(found.keys() | expected.keys())
        if found.get(path) != expected.get(path)
    ]
    assert not differing, f"{len(differing)} entries differ: {differing[:5]}"


def make_files(root: Path, count: int, seed: int = 0, directories: int = 50, largest: int = 3000) -> None:
    """`count` files of 0 to `largest` random bytes in `directories` directories, with mtimes long past."""
    randomness = random.Random(seed)
    for index in range(directories):
        (root / f"d{index:03}").mkdir(parents=True, exist_ok=True)
    for index in range(count):
        path = root / f"d{index % directories:03}" / f"f{index:06}"
        path.write_bytes(randomness.randbytes(randomness.randrange(largest + 1)))
        when = 1_600_000_000_000_000_000 + index * 1_000_003
        os.utime(path, ns=(when, when))


def make_deep(root: Path, names: list[bytes], leaf: bytes = b"leaf") -> None:
    """Directories in one another, with a file in the last."""
    root.mkdir(parents=True, exist_ok=True)
    fd = os.open(root, _DIRECTORY)
    for name in names:
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, _DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    leaf_fd = os.open(leaf, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd)
    os.write(leaf_fd, b"deep down")
    os.close(leaf_fd)
    os.close(fd)


def remove(root: Path) -> None:
    """Removes a tree however deep it is; shutil's recursion ends at some hundred levels."""
    try:
        top = os.open(root, _DIRECTORY)
    except FileNotFoundError:
        return
    spare = 0
    pending = [b"."]
    while pending:
        name = pending.pop()
        fd = os.open(name, _DIRECTORY, dir_fd=top)
        os.fchmod(fd, 0o700)
        for child in map(os.fsencode, os.listdir(fd)):
            if stat.S_ISDIR(os.stat(child, dir_fd=fd, follow_symlinks=False).st_mode):
                if name != b".":
                    os.chmod(child, 0o700, dir_fd=fd)
                    spare += 1
                    os.rename(child, b".moved-%d" % spare, src_dir_fd=fd, dst_dir_fd=top)
                pending.append(child if name == b"." else b".moved-%d" % spare)
            else:
                os.unlink(child, dir_fd=fd)
        os.close(fd)
        if name != b".":
            os.rmdir(name, dir_fd=top)
    os.close(top)
    os.rmdir(root)


def _walk(root: Path) -> Iterator[tuple[bytes, int, bytes, os.stat_result]]:
    """(path, descriptor of its directory, name, lstat) of everything below `root`, in any order."""
    pending: list[tuple[bytes, int]] = [(b"", os.open(root, _DIRECTORY))]
    while pending:
        prefix, fd = pending.pop()
        deeper = []
        for name in map(os.fsencode, os.listdir(fd)):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            yield prefix + name, fd, name, found
            if stat.S_ISDIR(found.st_mode):
                deeper.append((prefix + name + b"/", os.open(name, _DIRECTORY, dir_fd=fd)))
        os.close(fd)
        pending += deeper


def _seen(parent: int, name: bytes, found: os.stat_result) -> Seen:
    if stat.S_ISDIR(found.st_mode):
        return Seen("d", False, 0, 0, b"")
    if stat.S_ISLNK(found.st_mode):
        return Seen("l", False, 0, 0, os.readlink(name, dir_fd=parent))
    if not stat.S_ISREG(found.st_mode):
        return Seen("?", False, 0, 0, b"")
    digest = hashlib.sha256()
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    while piece := os.read(fd, _PIECE):
        digest.update(piece)
    os.close(fd)
    return Seen("f", bool(found.st_mode & 0o100), found.st_size, found.st_mtime_ns, digest.digest())
