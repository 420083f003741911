"""Directories as sources and stores: any storage that is mounted."""

import contextlib
import errno
import fcntl
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

from dsagent.adapters.beneath import Ground, canonical, folder_of, leads_out, open_entry
from dsagent.adapters.linux import start_writing_back
from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Stamp
from dsagent.core.errors import (
    BadStore,
    DsagentError,
    SourceChanged,
    SourceError,
    local_error,
    show_path,
    source_changed,
    source_error,
)
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.ports import Location, StoredObject
from dsagent.core.symlinks import target_leaves
from dsagent.engine.tree import open_below, write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SPOOLS = "tmp/"

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FORMAT = stat.S_IFMT(0o777777)  # the bits of a mode that say what it is
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DirectorySource:
    """A directory tree as a source."""

    remote = False  # a mount may be slow; the engine finds out by measuring

    def __init__(self, location: Location) -> None:
        self.location = canonical(location)
        self._open: Callable[[int, bytes, int], int] = open_below if folder_of(location) is None else open_entry
        try:
            self._root = Ground(location).open("", os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise leads_out(location, error) or source_error("read", self.location.url, error) from error

    def __del__(self) -> None:
        if hasattr(self, "_root"):
            os.close(self._root)

    def scan(self, special: list[bytes] | None = None) -> Iterator[Stamp]:
        """See Source.scan. Directories that cannot be listed are named all together, at the end."""
        unreadable: list[bytes] = []
        unfit: list[bytes] = []
        pending = [self._list(b"", unreadable)]
        while pending:
            for stamp in pending[-1]:
                kind = stamp.kind
                if kind == FILE:
                    yield stamp
                elif kind == DIRECTORY:
                    yield stamp
                    pending.append(self._list(stamp.path, unreadable))
                    break
                elif kind == SYMLINK and not target_leaves(stamp.path, stamp.token):
                    yield stamp
                else:
                    (unfit if special is None else special).append(stamp.path)
            else:
                pending.pop()
        if unreadable:
            raise SourceError(
                "list", self.location.url, "no permission or an I/O error", "make them readable", unreadable
            )
        if unfit:
            raise SourceError(
                "keep all entries of",
                self.location.url,
                "it has sockets, fifos, devices or symlinks that leave the tree",
                "remove them, or leave them out with --skip-special",
                unfit,
            )

    def chunks(self, stamp: Stamp) -> Iterator[bytes]:
        """See Source.chunks. The listing is the look at the file before the reading; ctime never goes back."""
        if stamp.size > FRAME_BYTES:
            return self._pieces(stamp)
        data = self._whole(stamp)
        return iter((data,) if data else ())

    def _whole(self, stamp: Stamp) -> bytes:
        # A million small files come through here: no generator, and no system call that is not needed.
        size = stamp.size
        try:
            fd = self._open(self._root, stamp.path, _READ)
            try:
                data = os.read(fd, size + 1)
                while 0 < len(data) < size and (more := os.read(fd, size + 1 - len(data))):
                    data += more
                found = os.fstat(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._unreadable(stamp, error) from error
        self._compare(stamp, found, len(data))
        return data

    def _pieces(self, stamp: Stamp) -> Iterator[bytes]:
        try:
            fd = self._open(self._root, stamp.path, _READ)
            try:
                self._compare(stamp, os.fstat(fd))
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
                offset = 0
                while piece := _read_fully(fd, FRAME_BYTES):
                    offset += len(piece)
                    if offset >= stamp.size:
                        self._compare(stamp, os.fstat(fd), offset)
                    yield piece
                self._compare(stamp, os.fstat(fd), offset)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._unreadable(stamp, error) from error

    def _unreadable(self, stamp: Stamp, error: OSError) -> DsagentError:
        if error.errno in (errno.ENOENT, errno.ESTALE, errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
            return self._changed(stamp)
        return source_error("read", f"{self.location.url}/{show_path(stamp.path)}", error)

    def _list(self, directory: bytes, unreadable: list[bytes]) -> Iterator[Stamp]:
        prefix = directory + b"/" if directory else b""
        try:
            fd = self._open(self._root, directory, _LIST) if directory else os.dup(self._root)
        except OSError:
            unreadable.append(directory)
            return
        # A million entries come through here: a call less for each is a tenth of the time.
        encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
        try:
            for name in sorted([text.encode(encoding, errors) for text in os.listdir(fd)]):
                try:
                    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    mode = found.st_mode
                    if mode & _FORMAT == stat.S_IFREG:
                        token = b"%d" % found.st_ctime_ns
                        yield Stamp(prefix + name, FILE, mode & 0o100 != 0, found.st_size, found.st_mtime_ns, token)
                    else:
                        yield _other_stamp(prefix + name, found, fd, name)
                except FileNotFoundError as error:
                    raise self._changed(Stamp(prefix + name, FILE, False, 0, 0, b"")) from error
        except OSError:
            unreadable.append(directory)
        finally:
            os.close(fd)

    def _compare(self, stamp: Stamp, found: os.stat_result, length: int | None = None) -> None:
        if _file_row(found) != stamp[1:] or (length is not None and length != stamp.size):
            raise self._changed(stamp)

    def _changed(self, stamp: Stamp) -> SourceChanged:
        return source_changed(self.location.url, stamp.path)


def _file_row(found: os.stat_result) -> tuple[str, bool, int, int, bytes]:
    """A file's stamp without its path."""
    return FILE, found.st_mode & 0o100 != 0, found.st_size, found.st_mtime_ns, b"%d" % found.st_ctime_ns


def _other_stamp(path: bytes, found: os.stat_result, directory: int, name: bytes) -> Stamp:
    if stat.S_ISDIR(found.st_mode):
        return Stamp(path, DIRECTORY, False, 0, 0, b"")
    if stat.S_ISLNK(found.st_mode):
        return Stamp(path, SYMLINK, False, 0, 0, os.readlink(name, dir_fd=directory))
    return Stamp(path, "", False, 0, 0, b"")


def _read_fully(fd: int, length: int) -> bytes:
    data = os.read(fd, length)
    while data and len(data) < length and (more := os.read(fd, length - len(data))):
        data += more
    return data


class DirectoryStore:
    """A directory as a store. New objects appear by link(2) without replacing; they are on the device before."""

    remote = False

    def __init__(self, location: Location, durable: bool = True) -> None:
        self.location = canonical(location)
        self._durable = durable
        try:
            self._ground = Ground(location)
        except OSError as error:
            raise local_error("open", self.location.url, error) from error

    def find(self, key: str) -> bytes | None:
        """See Store.find."""
        try:
            fd = self._ground.open(key, os.O_RDONLY)
            try:
                with open(fd, "rb", closefd=False) as file:
                    return file.read()
            finally:
                os.close(fd)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._error("read", key, error) from error

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """See Store.read."""
        try:
            fd = self._ground.open(key, os.O_RDONLY)
            try:
                if length is None:
                    length = os.fstat(fd).st_size - offset
                data = os.pread(fd, length, offset)
                while len(data) < length and (more := os.pread(fd, length - len(data), offset + len(data))):
                    data += more
                return data
            finally:
                os.close(fd)
        except OSError as error:
            raise self._error("read", key, error) from error

    def create(self, key: str, data: bytes | BinaryIO) -> bool:
        """See Store.create. A spool becomes the object by a link: its bytes are not copied."""
        with self._writing(key, data) as spool, self._ground.parent(key) as (folder, name):
            try:
                os.link(spool.key, name, src_dir_fd=spool.folder, dst_dir_fd=folder)
            except FileExistsError:
                return False
            self._sync_folder(key)
        return True

    def replace(self, key: str, data: bytes, expected: bytes | None) -> bool:
        """See Store.replace. Writers on one machine, or on a filesystem with locks, exclude each other."""
        with self._writing(key, data) as spool, self._locked(), self._ground.parent(key) as (folder, name):
            if self.find(key) != expected:
                return False
            os.rename(spool.key, name, src_dir_fd=spool.folder, dst_dir_fd=folder)
            self._sync_folder(key)
        return True

    def spool(self) -> BinaryIO:
        """See Store.spool."""
        name = os.urandom(16).hex()
        try:
            self._ground.make(SPOOLS)
            folder = self._ground.open(SPOOLS, _LIST)

            def explain(error: OSError) -> DsagentError:
                return self._error("write", SPOOLS + name, error)

            return cast("BinaryIO", _Spool(folder, name, self._durable, explain))
        except OSError as error:
            raise self._error("write", SPOOLS, error) from error

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        """See Store.entries."""
        try:
            with self._ground.parent(prefix) as (folder, _):
                fd = os.open(".", _LIST, dir_fd=folder)
                try:
                    for name in sorted(os.listdir(fd)):
                        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                            found = os.stat(name, dir_fd=fd)
                            yield StoredObject(prefix + name, found.st_size, found.st_mtime)
                finally:
                    os.close(fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error("list", prefix, error) from error

    def refresh(self, key: str) -> None:
        """See Store.refresh."""
        try:
            with self._ground.parent(key) as (folder, name):
                os.utime(name, dir_fd=folder)
        except OSError as error:
            raise self._error("refresh", key, error) from error

    def delete(self, key: str) -> None:
        """See Store.delete."""
        try:
            with contextlib.suppress(FileNotFoundError), self._ground.parent(key) as (folder, name):
                os.unlink(name, dir_fd=folder)
        except OSError as error:
            raise self._error("delete", key, error) from error

    @contextlib.contextmanager
    def _writing(self, key: str, data: bytes | BinaryIO) -> Iterator["_Spool"]:
        """A temporary file with the data, on the device."""
        try:
            self._ground.make(key.rpartition("/")[0])
            with self.spool() if isinstance(data, bytes) else contextlib.nullcontext(data) as file:
                if isinstance(data, bytes):
                    write_all(file.fileno(), data)
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
                yield cast("_Spool", file)
        except OSError as error:
            raise self._error("write", key, error) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fd = self._ground.open("", _LIST)
        try:
            with contextlib.suppress(OSError):  # a network filesystem without locks
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _sync_folder(self, key: str) -> None:
        if self._durable:
            fd = self._ground.open(key.rpartition("/")[0], _LIST)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _error(self, action: str, key: str, error: OSError) -> DsagentError:
        subject = f"{self.location.url}/{key}"
        if out := leads_out(self.location, error):
            return out
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE):
            return BadStore(action, subject, error.strerror or str(error), "check the store: dsctl store check")
        return local_error(action, subject, error)


class _Spool(io.FileIO):
    """A new file, `key` in the directory `folder`, that loses this name when it is closed; a write that fails is the
    store's error.
    """

    def __init__(self, folder: int, key: str, durable: bool, explain: Callable[[OSError], DsagentError]) -> None:
        self.folder = folder
        self.key = key
        self._durable = durable
        self._explain = explain
        self._written = self._started = 0
        try:
            super().__init__(key, "x+", opener=lambda name, flags: os.open(name, flags, 0o666, dir_fd=folder))
        except BaseException:
            os.close(folder)
            raise

    def write(self, data: "ReadableBuffer", /) -> int:
        view = memoryview(data)
        size = view.nbytes
        try:
            write_all(self.fileno(), view)
        except OSError as error:
            raise self._explain(error) from error
        self._written += size
        if self._durable and self._written - self._started >= FRAME_BYTES:
            start_writing_back(self.fileno(), self._started, self._written - self._started)
            self._started = self._written
        return size

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.key, dir_fd=self.folder)
            os.close(self.folder)
        super().close()
