"""A tree on the local disk, written and read relative to descriptors, so that paths may be longer than PATH_MAX."""

import errno
import os
import re
import stat
from collections.abc import Callable
from types import TracebackType

from dsagent.core.errors import DsagentError, InsufficientStorage, local_error, show_path

# Most bytes of one write. For a larger one the kernel takes huge pages, which take longer to come by on a virtual
# machine: copying took 1.5 to 3.6 % of the CPU time of a pack before, and about 1 % in pieces of this size.
WRITE_BYTES = 128 << 10

_PIECE = 4000  # less than PATH_MAX, which is 4096 with the final NUL
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_at(path: bytes, flags: int, above: int) -> int:
    """Opens `path` below the directory `above`; raises OSError."""
    return os.open(path, flags, dir_fd=above)


def open_below(root: int, path: bytes, flags: int, open_: Callable[[bytes, int, int], int] = open_at) -> int:
    """Opens `path` below the directory `root`, however long it is, by `open_`; raises OSError."""
    held = root
    try:
        while len(path) > _PIECE:
            cut = path.rindex(b"/", 0, _PIECE)
            deeper = open_(path[:cut], _DIRECTORY, held)
            if held != root:
                os.close(held)
            held, path = deeper, path[cut + 1 :]
        return open_(path, flags, held)
    finally:
        if held != root:
            os.close(held)


class Tree:
    """A directory of this process's own below which entries are made and read, in path order for speed.

    Not for use from several threads. All methods raise OSError; `explain` makes a DsagentError of it.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent = b""
        self._fd = self._root
        self._mode_differs = bool(_umask() & 0o555)

    def __enter__(self) -> "Tree":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the descriptors."""
        if self._fd != self._root:
            os.close(self._fd)
        os.close(self._root)

    def parent(self, path: bytes) -> tuple[int, bytes]:
        """The descriptor of the directory that holds `path`, and the name in it."""
        directory, _, name = path.rpartition(b"/")
        if directory != self._parent:
            fd = open_below(self._root, directory, _DIRECTORY) if directory else self._root
            if self._fd != self._root:
                os.close(self._fd)
            self._parent, self._fd = directory, fd
        return self._fd, name

    def make_directory(self, path: bytes) -> None:
        """Makes a directory; nothing happens if it is there."""
        parent, name = self.parent(path)
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise

    def make_symlink(self, path: bytes, target: bytes) -> None:
        """Makes a symlink in place of whatever an earlier attempt left."""
        parent, name = self.parent(path)
        try:
            os.symlink(target, name, dir_fd=parent)
        except FileExistsError:
            os.unlink(name, dir_fd=parent)
            os.symlink(target, name, dir_fd=parent)

    def create(self, path: bytes, executable: bool) -> int:
        """A descriptor to write a new read-only file, in place of whatever an earlier attempt left."""
        parent, name = self.parent(path)
        mode = 0o555 if executable else 0o444
        try:
            fd = os.open(name, _CREATE, mode, dir_fd=parent)
        except FileExistsError:
            os.unlink(name, dir_fd=parent)
            fd = os.open(name, _CREATE, mode, dir_fd=parent)
        if self._mode_differs:
            os.fchmod(fd, mode)
        return fd

    def link(self, path: bytes, source: int) -> None:
        """Makes `path` a hard link of the file with the same name in the directory that `source` describes."""
        parent, name = self.parent(path)
        try:
            os.link(name, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            os.unlink(name, dir_fd=parent)
            os.link(name, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)

    def status(self, path: bytes) -> os.stat_result:
        """lstat of an entry."""
        parent, name = self.parent(path)
        return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def open(self, path: bytes) -> int:
        """A descriptor to read a file."""
        parent, name = self.parent(path)
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)

    def read_link(self, path: bytes) -> bytes:
        """The target of a symlink."""
        parent, name = self.parent(path)
        return os.readlink(name, dir_fd=parent)

    def seal_directory(self, path: bytes) -> int:
        """Makes a directory read-only; returns the bytes it takes on the disk."""
        parent, name = self.parent(path)
        os.chmod(name, 0o555, dir_fd=parent)
        return os.stat(name, dir_fd=parent).st_blocks * 512

    def explain(self, path: bytes, error: OSError) -> DsagentError:
        """What an OSError met at `path` means to the user."""
        subject = f"{self.root}/{show_path(path)}"
        if error.errno == errno.ENOSPC:
            disk = os.fstatvfs(self._root)
            if disk.f_bavail > 0 and (disk.f_favail > 0 or disk.f_files == 0):
                return InsufficientStorage(
                    "write",
                    subject,
                    "the filesystem has room, but the directory can hold no more entries, or a quota is used up",
                    "spread the source's files over more directories, or use a root on XFS",
                )
        return local_error("write", subject, error)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes all of `data`; raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:WRITE_BYTES]) :]


def remove_tree(path: str) -> None:
    """Removes a tree, its read-only directories included; nothing happens if it is not there. Raises OSError.

    Every subdirectory is first moved to the top, so that neither PATH_MAX, nor the number of open files, nor the
    interpreter's stack limits the depth.
    """
    try:
        top = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        prefix = os.urandom(8).hex().encode()
        pending = _empty(top)
        moved = 0
        while pending:
            name = pending.pop()
            fd = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                for child in _empty(fd):
                    moved += 1
                    os.chmod(child, 0o700, dir_fd=fd)  # moving a directory changes its '..'
                    target = b"%b-%d" % (prefix, moved)
                    os.rename(child, target, src_dir_fd=fd, dst_dir_fd=top)
                    pending.append(target)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(fd: int) -> list[bytes]:
    """Unlinks all but the directories in a directory and returns the names of those."""
    os.fchmod(fd, 0o700)
    directories = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(os.fsencode(entry.name))
            else:
                os.unlink(entry.name, dir_fd=fd)
    return directories


def _umask() -> int:
    # os.umask can only be read by setting it, for all threads of the process at once.
    with open("/proc/self/status", "rb") as status:
        found = re.search(rb"^Umask:\s*([0-7]+)", status.read(), re.MULTILINE)
    return int(found[1], 8) if found else 0o777
