"""Reaching what lies below a directory. Where that directory must lie beneath a folder, nothing leads out of it: not
`..`, no symlink, and none that is put there meanwhile; the kernel sees to it (openat2).
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator

from dsagent.core.errors import NotPermitted, UsageError
from dsagent.core.ports import BENEATH, Location
from dsagent.engine.tree import open_below

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYS_OPENAT2 = 437  # on every architecture
_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 100  # the kernel gives up when something is renamed on the way
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_OUT = (errno.EXDEV, errno.ELOOP)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder: int, path: bytes, flags: int, mode: int = 0, symlinks: bool = True) -> int:
    """Opens `path` below the directory `folder`; raises OSError, with EXDEV or ELOOP for what leads out of it.

    Without `symlinks` none may be on the way, wherever it leads.
    """
    resolve = _BENEATH | _NO_MAGIC_LINKS | (0 if symlinks else _NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    for _ in range(_TRIES):
        fd: int = _LIBC.syscall(
            ctypes.c_long(_SYS_OPENAT2), folder, path or b".", ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
        )
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), os.fsdecode(path))


def require_openat2() -> None:
    """Raises UsageError where the kernel does not offer it, or a container's profile forbids it."""
    root = os.open("/", _FOLDER)
    try:
        os.close(open_beneath(root, b".", _FOLDER))
    except OSError as error:
        raise UsageError(
            "limit sources to folders with",
            "openat2",
            error.strerror or str(error),
            "it takes Linux 5.6, and a container whose seccomp profile allows openat2",
        ) from error
    finally:
        os.close(root)


def open_entry(root: int, path: bytes, flags: int) -> int:
    """Opens an entry of a tree, however long its path is; no symlink may be on the way."""
    return open_below(root, path, flags, lambda part, wanted, above: open_beneath(above, part, wanted, symlinks=False))


def folder_of(location: Location) -> str | None:
    """The folder that a location must lie beneath, if there is one."""
    return dict(location.options).get(BENEATH)


def canonical(location: Location) -> Location:
    """A directory by its whole path, with the folder that it must lie beneath."""
    folder = folder_of(location)
    return Location(os.path.abspath(location.url), ((BENEATH, folder),) if folder is not None else ())


def leads_out(location: Location, error: OSError) -> NotPermitted | None:
    """The error if what was found at a location leads out of the folder that it must lie beneath."""
    return _leads_out(location.url) if folder_of(location) is not None and error.errno in _OUT else None


def _leads_out(path: str) -> NotPermitted:
    return NotPermitted(
        "open",
        path,
        "it leads out of the folder that sources may be in",
        "use the path without symlinks and '..'; an administrator can allow other folders: --sources",
    )


class Ground:
    """A directory that may not be there yet, and what lies below it by key. Methods raise OSError."""

    def __init__(self, location: Location) -> None:
        self._url = os.path.abspath(location.url)
        self._folder = -1
        folder = folder_of(location)
        if folder is not None:
            self._path = _within(location.url, folder)
            self._folder = os.open(folder, _FOLDER)

    def __del__(self) -> None:
        if getattr(self, "_folder", -1) >= 0:
            os.close(self._folder)

    def open(self, key: str, flags: int, mode: int = 0) -> int:
        """Opens `key`, or the directory itself for an empty one."""
        if self._folder < 0:
            return os.open(os.path.join(self._url, key), flags | os.O_CLOEXEC, mode)
        return open_beneath(self._folder, os.fsencode(os.path.join(self._path, key)), flags, mode)

    @contextlib.contextmanager
    def parent(self, key: str) -> Iterator[tuple[int, str]]:
        """The directory that holds `key`, and the name in it."""
        folder, _, name = key.rpartition("/")
        fd = self.open(folder, _FOLDER)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def make(self, folder: str) -> None:
        """Makes a directory and those above it that are missing."""
        if self._folder < 0:
            os.makedirs(os.path.join(self._url, folder), exist_ok=True)
            return
        parts = os.path.join(self._path, folder).rstrip("/").split("/")
        for depth in range(len(parts)):
            above = open_beneath(self._folder, os.fsencode("/".join(parts[:depth])), _FOLDER)
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parts[depth], dir_fd=above)
            finally:
                os.close(above)


def _within(path: str, folder: str) -> str:
    """The rest of a path below a folder; the kernel follows its symlinks and `..`."""
    if path != folder and not path.startswith(folder.rstrip("/") + "/"):
        raise _leads_out(path)
    return path[len(folder) :].strip("/")
