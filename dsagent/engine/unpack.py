"""From bundles to files: which frames are needed, and the job that turns some of them into files."""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import xxhash
import zstandard

from dsagent.core.entries import Entry
from dsagent.core.errors import DigestMismatch
from dsagent.core.layout import bundle_key
from dsagent.core.manifest import Bundle, Frame
from dsagent.core.ports import Location, Store
from dsagent.engine import journal
from dsagent.engine.crew import Tools
from dsagent.engine.tree import Tree, write_all

JOB_BYTES = 32 << 20
JOB_FILES = 2_000
# A version that was updated often refers to many bundles in turn; this many jobs are kept open at once.
OPEN_JOBS = 64


class Wanted(NamedTuple):
    """A file to be made from a bundle; `offset` is in the bundle's plain stream."""

    path: bytes
    executable: bool
    size: int
    mtime_ns: int
    content: bytes
    offset: int


@dataclass(frozen=True)
class Unpack:
    """Makes `files`, sorted by offset, below `into` from the frames of one bundle that hold them."""

    store: Location
    bundle: str
    frames: tuple[Frame, ...]
    files: tuple[Wanted, ...]
    into: str
    journal: str

    @property
    def key(self) -> str:
        """The job's name in the journal."""
        return journal.job_key(self.bundle, self.files[0].offset, *(file.path for file in self.files))

    def perform(self, tools: Tools) -> None:
        """Writes the files and compares each with its digest; what differs is fetched once more.

        Raises DigestMismatch naming the files that still differ, BadStore, InsufficientStorage, NotPermitted.
        """
        store = tools.open.store(self.store)
        with Tree(self.into) as tree:
            bad = self._write(store, tree, self.frames, self.files, tools)
            if bad:
                bad = self._write(store, tree, self.frames, bad, tools)
        if bad:
            raise DigestMismatch(
                "unpack",
                f"{self.store.url}/{bundle_key(self.bundle)}",
                "files differ from the manifest after a second reading",
                "check the store (dsctl store check) and pack the source anew",
                [file.path for file in bad],
            )
        journal.append(self.journal, self.key)

    def _write(
        self, store: Store, tree: Tree, frames: Sequence[Frame], files: Sequence[Wanted], tools: Tools
    ) -> list[Wanted]:
        """Writes files and returns those that differ from their digest."""
        bad = []
        with FrameReader(store, self.bundle, frames) as reader:
            for file in files:
                try:
                    same = _write_file(tree, file, reader)
                except FrameError:
                    same = False
                except OSError as error:
                    raise tree.explain(file.path, error) from error
                if same:
                    tools.progress(file.size, 1)
                else:
                    bad.append(file)
        return bad


def _write_file(tree: Tree, file: Wanted, reader: "FrameReader") -> bool:
    pieces = reader.pieces(file.offset, file.size)
    first = next(pieces, b"")
    fd = tree.create(file.path, file.executable)
    try:
        write_all(fd, first)
        if len(first) == file.size:
            digest = xxhash.xxh3_128_digest(first)
        else:
            digest = _write_rest(fd, first, pieces)
        os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))
    finally:
        os.close(fd)
    return digest == file.content


def _write_rest(fd: int, first: bytes | memoryview, pieces: Iterable[bytes | memoryview]) -> bytes:
    digest = xxhash.xxh3_128(first)
    for piece in pieces:
        write_all(fd, piece)
        digest.update(piece)
    return digest.digest()


class FrameError(Exception):
    """A frame's stored bytes are not those that the manifest describes."""


class FrameReader:
    """Reads plain bytes of a bundle by offset, forwards; the next frame is read while one is used."""

    def __init__(self, store: Store, bundle: str, frames: Sequence[Frame]) -> None:
        self._store = store
        self._key = bundle_key(bundle)
        self._frames = frames
        self._starts = [frame.start for frame in frames]
        self._at = -1
        self._plain: memoryview = memoryview(b"")
        self._decompressor = zstandard.ZstdDecompressor()
        self._executor = ThreadPoolExecutor(1) if store.remote else None
        self._next: tuple[int, Future[bytes]] | None = None

    def __enter__(self) -> "FrameReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor:
            self._executor.shutdown(cancel_futures=True)

    def pieces(self, offset: int, size: int) -> Iterator[memoryview]:
        """The bytes from `offset`, a frame at a time; raises FrameError for a frame that is not as described."""
        while size > 0:
            index = bisect_right(self._starts, offset) - 1
            if index != self._at:
                self._plain = memoryview(self._decode(index))
                self._at = index
            begin = offset - self._starts[index]
            piece = self._plain[begin : begin + size]
            if not piece:
                raise FrameError
            yield piece
            offset += len(piece)
            size -= len(piece)

    def _decode(self, index: int) -> bytes:
        frame = self._frames[index]
        stored = self._fetch(index)
        if len(stored) != frame.stored or xxhash.xxh3_128_digest(stored) != frame.digest:
            raise FrameError
        # The size in the frame's own header is what the decompressor allocates: it must be known before.
        try:
            if zstandard.frame_content_size(stored) != frame.plain:
                raise FrameError
            return self._decompressor.decompress(stored, max_output_size=frame.plain)
        except zstandard.ZstdError as error:
            raise FrameError from error

    def _fetch(self, index: int) -> bytes:
        if self._executor is None:
            return self._read(index)
        if self._next is not None and self._next[0] == index:
            stored = self._next[1].result()
        else:
            stored = self._read(index)
        if index + 1 < len(self._frames):
            self._next = index + 1, self._executor.submit(self._read, index + 1)
        return stored

    def _read(self, index: int) -> bytes:
        frame = self._frames[index]
        return self._store.read(self._key, frame.offset, frame.stored)


class UnpackPlan:
    """Cuts the files of a version, given in path order, into jobs that read each needed frame once, or nearly so.

    Files that share frames go into one job; a job takes up to JOB_BYTES or JOB_FILES.
    """

    def __init__(self, store: Location, bundles: Sequence[Bundle], into: str, journal_path: str) -> None:
        self._store = store
        self._bundles = bundles
        self._into = into
        self._journal = journal_path
        self._starts = [[frame.start for frame in bundle.frames] for bundle in bundles]
        self._opened: dict[int, list[Wanted]] = {}
        self._limits: dict[int, int] = {}

    def add(self, entry: Entry) -> Iterator[Unpack]:
        """Adds a file; gives the jobs that are complete now."""
        index, offset = entry.bundle, entry.offset
        files = self._opened.get(index)
        if files is not None and (offset >= self._limits[index] or offset < files[0].offset):
            yield self._job(index)
            files = None
        if files is None:
            if len(self._opened) >= OPEN_JOBS:
                yield self._job(next(iter(self._opened)))
            files = self._opened[index] = []
            first = self._frame(index, offset).start
            self._limits[index] = self._end(index, first + JOB_BYTES - 1)
        files.append(Wanted(entry.path, entry.executable, entry.size, entry.mtime_ns, entry.content, offset))
        if len(files) == JOB_FILES:
            self._limits[index] = min(self._limits[index], self._end(index, offset))

    def rest(self) -> Iterator[Unpack]:
        """The jobs that are left."""
        while self._opened:
            yield self._job(next(iter(self._opened)))

    def _job(self, index: int) -> Unpack:
        files = tuple(sorted(self._opened.pop(index), key=attrgetter("offset")))
        starts = self._starts[index]
        needed: dict[int, None] = {}
        for file in files:
            last = file.offset + max(0, file.size - 1)
            needed.update(dict.fromkeys(range(bisect_right(starts, file.offset) - 1, bisect_right(starts, last))))
        frames = tuple(self._bundles[index].frames[at] for at in sorted(needed))
        return Unpack(self._store, self._bundles[index].digest, frames, files, self._into, self._journal)

    def _frame(self, index: int, offset: int) -> Frame:
        return self._bundles[index].frames[bisect_right(self._starts[index], offset) - 1]

    def _end(self, index: int, offset: int) -> int:
        """Where the frame with `offset` ends."""
        frame = self._frame(index, offset)
        return frame.start + frame.plain
