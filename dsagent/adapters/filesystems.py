"""Whatever fsspec finds installed (HDFS, SFTP, SMB, other clouds …) as sources and stores.

How much a filesystem promises differs. On HDFS a rename never replaces unless it is asked to, so `create` and
`replace` are as safe as on a directory, but for two writers who replace the pointer at the same moment: the last
one wins. Elsewhere that holds for `create` too wherever a rename replaces: the two then write the same bytes, for
the key is their digest.
"""

import contextlib
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from operator import itemgetter
from typing import Any, BinaryIO

from dsagent.adapters.fsspec_files import (
    Infos,
    converting,
    is_webhdfs,
    modified_ns,
    name_of,
    open_files,
    stamp_of,
    without_password,
)
from dsagent.core.entries import DIRECTORY, FILE, Stamp, find_bad_path
from dsagent.core.errors import (
    BadStore,
    SourceChanged,
    SourceError,
    show_path,
    source_changed,
)
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.ports import Location, StoredObject

LISTS_AT_ONCE = 16
TEMPORARY = "tmp"


class FilesystemSource:
    """A folder of an fsspec filesystem as a source.

    Where the listing has no time of change, stamps are never trusted: each update reads the files again.
    """

    remote = True

    def __init__(self, location: Location) -> None:
        self.location = without_password(location)
        self._files, self._root = open_files(self.location, SourceError)

    def scan(self, special: list[bytes] | None = None) -> Iterator[Stamp]:
        """See Source.scan. Folders that cannot be listed are named all together, at the end."""
        unfit: list[bytes] = []
        unreadable: list[bytes] = []
        executor = ThreadPoolExecutor(LISTS_AT_ONCE)
        try:
            walk = _Walk(self._files, executor, unreadable)
            levels = [walk.level(self._top(), b"")]
            while levels:
                stamp, listing = next(levels[-1], (None, None))
                if stamp is None:
                    levels.pop()
                elif stamp.kind not in (FILE, DIRECTORY) or find_bad_path([stamp.path]):
                    (unfit if special is None else special).append(stamp.path)
                else:
                    yield stamp
                    if listing is not None:
                        levels.append(walk.level(listing.result(), stamp.path + b"/"))
        finally:
            executor.shutdown(cancel_futures=True)
        if unreadable:
            raise SourceError("list", self.location.url, "these folders cannot be listed", "", unreadable)
        if unfit:
            raise SourceError(
                "keep all entries of",
                self.location.url,
                "it has entries that are neither file nor folder, or names longer than 255 bytes",
                "remove them, or leave them out with --skip-special",
                unfit,
            )

    def chunks(self, stamp: Stamp) -> Iterator[bytes]:
        """See Source.chunks. The stamp is compared after the reading: the time of change never goes back."""
        path = f"{self._root}/{stamp.path.decode()}"
        subject = f"{self.location.url}/{show_path(stamp.path)}"
        with converting(SourceError, "read", subject):
            try:
                if stamp.size <= FRAME_BYTES:
                    data: bytes = self._files.cat_file(path)
                    self._compare(path, stamp, len(data))
                    if data:
                        yield data
                    return
                yield from self._pieces(path, stamp)
            except FileNotFoundError as error:
                raise self._changed(stamp) from error

    def _pieces(self, path: str, stamp: Stamp) -> Iterator[bytes]:
        length = 0
        with self._files.open(path, "rb", block_size=FRAME_BYTES) as file:
            while piece := file.read(FRAME_BYTES):
                length += len(piece)
                if length >= stamp.size:
                    self._compare(path, stamp, length)
                yield piece
        self._compare(path, stamp, length)

    def _compare(self, path: str, stamp: Stamp, length: int) -> None:
        self._files.invalidate_cache(path)
        found = stamp_of(stamp.path, self._files.info(path), stamp.mtime_ns)
        if found != stamp or length != stamp.size:
            raise self._changed(stamp)

    def _top(self) -> Infos:
        self._files.invalidate_cache(self._root)
        with converting(SourceError, "list", self.location.url):
            infos = _children(self._files, self._root)
            if not infos and not self._files.isdir(self._root):
                raise SourceError("list", self.location.url, "it is not a folder", "name the folder it is in")
            return infos

    def _changed(self, stamp: Stamp) -> SourceChanged:
        return source_changed(self.location.url, stamp.path)


class _Walk:
    """Lists folders; those that come next are listed meanwhile."""

    def __init__(self, files: Any, executor: ThreadPoolExecutor, unreadable: list[bytes]) -> None:
        self._files = files
        self._executor = executor
        self._unreadable = unreadable
        self._now = time.time_ns()

    def level(self, infos: Infos, prefix: bytes) -> Iterator[tuple[Stamp, "Future[Infos] | None"]]:
        """The stamps of one folder's entries, with the listing to come of those that are folders."""
        named = sorted(((name_of(info), info) for info in infos), key=itemgetter(0))
        folders = ((prefix + name, info["name"]) for name, info in named if info["type"] == "directory")
        ahead = deque(self._executor.submit(self._list, *folder) for folder in islice(folders, LISTS_AT_ONCE))
        for name, info in named:
            stamp = stamp_of(prefix + name, info, self._now)
            if stamp.kind != DIRECTORY:
                yield stamp, None
                continue
            yield stamp, ahead.popleft()
            ahead.extend(self._executor.submit(self._list, *folder) for folder in islice(folders, 1))

    def _list(self, path: bytes, name: str) -> Infos:
        try:
            return _children(self._files, name)
        except Exception:  # noqa: BLE001 - each filesystem has errors of its own; all folders are named together
            self._unreadable.append(path)
            return []


def _children(files: Any, folder: str) -> Infos:
    infos: Infos = files.ls(folder, detail=True)
    # Some filesystems list a folder among its own entries, and all list a file so.
    return [info for info in infos if info["name"].rstrip("/") != folder.rstrip("/")]


class FilesystemStore:
    """A folder of an fsspec filesystem as a store; see the module for what it can promise."""

    remote = True

    def __init__(self, location: Location) -> None:
        self.location = without_password(location)
        self._files, self._root = open_files(self.location, BadStore)
        self._writing = threading.Lock()

    def find(self, key: str) -> bytes | None:
        """See Store.find."""
        with self._converting("read", key):
            try:
                data: bytes = self._files.cat_file(self._path(key))
            except FileNotFoundError:
                return None
            return data

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """See Store.read."""
        end = None if length is None else offset + length
        # Otherwise a block of 4 MiB is read ahead for nothing each time.
        exact = {"block_size": 1} if is_webhdfs(self._files) else {}
        with self._converting("read", key):
            data: bytes = self._files.cat_file(self._path(key), start=offset, end=end, **exact)
            return data

    def create(self, key: str, data: bytes | BinaryIO) -> bool:
        """See Store.create."""
        with self._converting("write", key), self._written(data) as temporary, self._writing:
            path = self._path(key)
            self._files.makedirs(self._files._parent(path), exist_ok=True)  # noqa: SLF001 - fsspec has no other
            if self._files.exists(path):
                return False
            with contextlib.suppress(FileExistsError):
                self._files.mv(temporary, path)
            # WebHDFS answers a rename that it refuses with success.
            return not self._files.exists(temporary)

    def replace(self, key: str, data: bytes, expected: bytes | None) -> bool:
        """See Store.replace."""
        if expected is None:
            return self.create(key, data)
        with self._converting("write", key), self._written(data) as temporary, self._writing:
            if self.find(key) != expected:
                return False
            self._rename_over(temporary, self._path(key))
            return True

    def spool(self) -> BinaryIO:
        """See Store.spool. It lies in the folder for temporary files (TMPDIR)."""
        return tempfile.TemporaryFile()

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        """See Store.entries."""
        with self._converting("list", prefix):
            self._files.invalidate_cache(self._path(prefix))
            try:
                infos: Infos = self._files.ls(self._path(prefix).rstrip("/"), detail=True)
            except FileNotFoundError:
                return
        for info in infos:
            if info["type"] == "file":
                modified = modified_ns(info) or time.time_ns()  # unknown: too young to be deleted
                yield StoredObject(prefix + name_of(info).decode(), info["size"], modified / 1e9)

    def refresh(self, key: str) -> None:
        """See Store.refresh. HDFS sets the time; elsewhere the object is written anew."""
        path = self._path(key)
        with self._converting("refresh", key):
            if is_webhdfs(self._files):
                now = int(time.time() * 1000)
                self._files._call("SETTIMES", "put", path, modificationtime=now, accesstime=-1)  # noqa: SLF001
                return
            with self._files.open(path, "rb") as file, self._written(file) as temporary:
                self._rename_over(temporary, path)

    def delete(self, key: str) -> None:
        """See Store.delete."""
        with self._converting("delete", key), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextlib.contextmanager
    def _written(self, data: bytes | BinaryIO) -> Iterator[str]:
        """The path of a temporary file with the data; it is removed if it is still there at the end."""
        path = self._path(f"{TEMPORARY}/{uuid.uuid4().hex}")
        self._files.makedirs(self._path(TEMPORARY), exist_ok=True)
        try:
            if isinstance(data, bytes):
                self._files.pipe_file(path, data)
            else:
                data.seek(0)
                with self._files.open(path, "wb", block_size=FRAME_BYTES) as file:
                    while piece := data.read(FRAME_BYTES):
                        file.write(piece)
            yield path
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(path)

    def _rename_over(self, temporary: str, path: str) -> None:
        if is_webhdfs(self._files):
            # fsspec's mv has no way to say that it may replace.
            self._files._call("RENAME", "put", temporary, destination=path, renameoptions="OVERWRITE")  # noqa: SLF001
            return
        with contextlib.suppress(FileExistsError):
            self._files.mv(temporary, path)
        if self._files.exists(temporary):
            self._files.rm_file(path)
            self._files.mv(temporary, path)

    def _converting(self, action: str, key: str) -> contextlib.AbstractContextManager[None]:
        return converting(BadStore, action, f"{self.location.url}/{key}")
