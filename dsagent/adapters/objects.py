"""S3 buckets as sources and stores."""

import contextlib
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from dsagent.adapters.keyorder import KeyTree, Record, in_path_order
from dsagent.adapters.s3 import Bucket, Failure, converted, interruptibly, is_beyond_end
from dsagent.core.entries import Stamp, find_bad_path
from dsagent.core.errors import BadStore, SourceChanged, SourceError, show_path, source_changed
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.ports import Location, StoredObject

# isort: split
# After our own: s3.py says what to install where obstore is missing.
import obstore
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import S3Store

if TYPE_CHECKING:
    from dsagent.adapters.s3_listing import Listed

# Pieces of one large object that are asked for ahead of the one in use.
PIECES_AHEAD = 3
# S3 takes up to 10,000 parts.
MAX_PARTS = 9_000
PARTS_AT_ONCE = 4
# S3 copies up to 5 GB by itself; what is larger has to pass through here.
COPY_BYTES = 5_000_000_000
COPIES = "tmp/"
# Keys of directory buckets (S3 Express) are listed in no order.
UNORDERED = "--x-s3"

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class ObjectSource:
    """A prefix of a bucket as a source. Keys ending with a slash and of size 0 are directories."""

    remote = True

    def __init__(self, location: Location) -> None:
        self._bucket = Bucket(location)
        self.location = self._bucket.location

    def scan(self, special: list[bytes] | None = None) -> Iterator[Stamp]:  # noqa: ARG002 - objects have no such entries
        """See Source.scan. Keys that cannot be paths are an error in any case."""
        tree = KeyTree()
        held_back = b"\xff" if self._bucket.name.endswith(UNORDERED) else b""
        try:
            pages = self._bucket.pages(self._bucket.prefix)
            yield from tree.stamps(in_path_order(self._records(pages, tree), held_back))
        except Failure as error:
            raise converted(SourceError, "list", self.location.url, error) from error
        if tree.bad:
            raise SourceError(
                "keep all objects of",
                self.location.url,
                "keys with empty, '.' or '..' parts, control characters or names longer than 255 bytes, "
                "or both a file and a folder",
                "rename or remove them",
                tree.bad,
            )
        if tree.is_missing:
            raise SourceError("read", self.location.url, "there is no object under it", "check bucket and prefix")

    def chunks(self, stamp: Stamp) -> Iterator[bytes]:
        """See Source.chunks. The store compares the ETag with each request."""
        key = self._bucket.prefix + stamp.path.decode()
        try:
            if stamp.size <= FRAME_BYTES:
                data = self._get(key, stamp)
                if len(data) != stamp.size:
                    raise self._changed(stamp)
                if data:
                    yield data
                return
            yield from self._pieces(key, stamp)
        except (FileNotFoundError, PreconditionError) as error:
            raise self._changed(stamp) from error
        except Failure as error:
            subject = f"{self.location.url}/{show_path(stamp.path)}"
            raise converted(SourceError, "read", subject, error) from error

    def _pieces(self, key: str, stamp: Stamp) -> Iterator[bytes]:
        yield self._get(key, stamp, 0)
        executor = ThreadPoolExecutor(PIECES_AHEAD)
        try:
            offsets = iter(range(FRAME_BYTES, stamp.size, FRAME_BYTES))
            ahead = deque(executor.submit(self._get, key, stamp, offset) for offset in islice(offsets, PIECES_AHEAD))
            while ahead:
                yield ahead.popleft().result()
                if (offset := next(offsets, None)) is not None:
                    ahead.append(executor.submit(self._get, key, stamp, offset))
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _get(self, key: str, stamp: Stamp, offset: int | None = None) -> bytes:
        options: obstore.GetOptions = {}
        if stamp.token:
            options["if_match"] = stamp.token.decode()
        if offset is not None:
            options["range"] = offset, min(offset + FRAME_BYTES, stamp.size)
        found, data = _download(self._bucket.store, key, options)
        if found["size"] != stamp.size:
            raise self._changed(stamp)
        return data

    def _records(self, pages: "Iterable[list[Listed]]", tree: KeyTree) -> Iterator[Record]:
        skip = len(self._bucket.prefix)
        for page in pages:
            records = [(key[skip:].encode(), size, modified, etag.encode()) for key, size, modified, etag in page]
            # One look at a whole page: a look at each path takes ten times as long.
            if _is_bad(b"/".join([record[0] for record in records])):
                yield from self._fit(records, tree)
            else:
                yield from records

    def _fit(self, records: list[Record], tree: KeyTree) -> Iterator[Record]:
        for record in records:
            path, size, *_ = record
            if not path:
                tree.is_missing = False  # the marker of the folder itself
            elif _is_bad(path.removesuffix(b"/") if size == 0 else path):
                tree.bad.append(path)
            else:
                yield record

    def _changed(self, stamp: Stamp) -> SourceChanged:
        return source_changed(self.location.url, stamp.path)


def _download(store: S3Store, path: str, options: "obstore.GetOptions") -> "tuple[obstore.ObjectMeta, bytes]":
    def get() -> "tuple[obstore.ObjectMeta, bytes]":
        found = obstore.get(store, path, options=options)
        return found.meta, found.bytes().to_bytes()

    return interruptibly(get)


def _is_bad(path: bytes) -> bool:
    return find_bad_path([path]) is not None or _CONTROL.search(path) is not None


class ObjectStore:
    """A prefix of a bucket as a store.

    New objects are written with If-None-Match and the pointer with If-Match. A large object goes up in parts,
    for which obstore knows no condition: `create` looks first, and two packers that write the same key at once
    write the same bytes, for the key is their digest. With --storage-option conditional_put=disabled, for
    stores without conditions, the same holds for all objects, and the last of two writers of the pointer wins.
    """

    remote = True

    def __init__(self, location: Location) -> None:
        self._bucket = Bucket(location)
        self.location = self._bucket.location
        self._store = self._bucket.store

    def find(self, key: str) -> bytes | None:
        """See Store.find."""
        with self._converting("read", key):
            try:
                return _download(self._store, self._path(key), {})[1]
            except FileNotFoundError:
                return None

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """See Store.read."""
        if length == 0:
            return b""
        with self._converting("read", key):
            end = {"offset": offset} if length is None else (offset, offset + length)
            options: obstore.GetOptions = {"range": end} if offset or length is not None else {}  # type: ignore[typeddict-item]
            try:
                return _download(self._store, self._path(key), options)[1]
            except GenericError as error:
                if is_beyond_end(error):
                    return b""
                raise

    def create(self, key: str, data: bytes | BinaryIO) -> bool:
        """See Store.create."""
        with self._converting("write", key):
            if not isinstance(data, bytes):
                size = data.seek(0, os.SEEK_END)
                data.seek(0)
                if size > FRAME_BYTES:
                    return self._create_large(key, data, size)
                data = data.read()
            return self._put_new(key, data)

    def replace(self, key: str, data: bytes, expected: bytes | None) -> bool:
        """See Store.replace."""
        with self._converting("write", key):
            if expected is None:
                return self._put_new(key, data)
            try:
                found, current = _download(self._store, self._path(key), {})
                etag = found["e_tag"]
                if current != expected:
                    return False
                mode: obstore.PutMode = {"e_tag": etag} if etag else "overwrite"
                self._put(key, data, mode)
            except (FileNotFoundError, PreconditionError):
                return False
            except NotImplementedError:
                self._put(key, data, "overwrite")
            return True

    def spool(self) -> BinaryIO:
        """See Store.spool. It lies in the folder for temporary files (TMPDIR)."""
        return tempfile.TemporaryFile()

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        """See Store.entries."""
        with self._converting("list", prefix):
            for page in self._bucket.pages(self._path(prefix)):
                for key, size, modified, _ in page:
                    if not key.endswith("/"):
                        yield StoredObject(key.removeprefix(self._bucket.prefix), size, modified / 1e9)

    def refresh(self, key: str) -> None:
        """See Store.refresh. S3 refuses to copy an object onto itself as it is, so it goes by another key."""
        path, copy = self._path(key), self._path(COPIES + key)
        with self._converting("refresh", key):
            size = interruptibly(obstore.head, self._store, path)["size"]
            if size > COPY_BYTES:
                self._upload(path, obstore.get(self._store, path).stream(FRAME_BYTES), size)
                return
            interruptibly(obstore.copy, self._store, path, copy)
            interruptibly(obstore.copy, self._store, copy, path)
            interruptibly(obstore.delete, self._store, copy)

    def delete(self, key: str) -> None:
        """See Store.delete."""
        with self._converting("delete", key), contextlib.suppress(FileNotFoundError):
            interruptibly(obstore.delete, self._store, self._path(key))

    def _path(self, key: str) -> str:
        return self._bucket.prefix + key

    def _put(self, key: str, data: bytes, mode: "obstore.PutMode") -> None:
        interruptibly(obstore.put, self._store, self._path(key), data, mode=mode, use_multipart=False)

    def _put_new(self, key: str, data: bytes) -> bool:
        try:
            self._put(key, data, "create")
        except (AlreadyExistsError, PreconditionError):
            return False
        except GenericError:
            # Among much else: another writer was at this key at the same time (409).
            if self._has(key):
                return False
            raise
        except NotImplementedError:
            if self._has(key):
                return False
            self._put(key, data, "overwrite")
        return True

    def _create_large(self, key: str, data: BinaryIO, size: int) -> bool:
        if self._has(key):
            return False
        self._upload(self._path(key), data, size)
        return True

    def _upload(self, path: str, data: "BinaryIO | obstore.BytesStream", size: int) -> None:
        part = max(FRAME_BYTES, -(-size // MAX_PARTS))
        interruptibly(
            obstore.put, self._store, path, data, use_multipart=True, chunk_size=part, max_concurrency=PARTS_AT_ONCE
        )

    def _has(self, key: str) -> bool:
        try:
            interruptibly(obstore.head, self._store, self._path(key))
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def _converting(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except Failure as error:
            raise converted(BadStore, action, f"{self.location.url}/{key}", error) from error
