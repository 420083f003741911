"""From bundles to files: which frames are needed, and the job that turns some of them into files."""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import xxhash
import zstandard

from dsagent.core.entries import Entry
from dsagent.core.errors import DigestMismatch
from dsagent.core.layout import bundle_key
from dsagent.core.manifest import Bundle, Frame
from dsagent.core.ports import Location, Store
from dsagent.engine import journal
from dsagent.engine.crew import Tools
from dsagent.engine.reading import waits
from dsagent.engine.tree import Tree, write_all

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

JOB_BYTES = 16 << 20
JOB_FILES = 2_000
# A version that was updated often refers to many bundles in turn; this many jobs are kept open at once.
OPEN_JOBS = 64
FRAMES_AHEAD = 2
# Where a read waits more than once for so many bytes, they come from a device or a network. On a busy machine a read
# from the page cache waits now and then too.
WAIT_BYTES = 1 << 20
# Progress is told after so many files or bytes, because telling it takes as long as a system call.
TELL_FILES = 50
TELL_BYTES = 8 << 20


# A file to be made: path, executable, size, mtime_ns, content, offset in the bundle's plain stream. A plain tuple,
# because a million of them are pickled.
Wanted = tuple[bytes, bool, int, int, bytes, int]


class Unpack(NamedTuple):
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
        return journal.job_key(self.bundle, self.files[0][-1], *(file[0] for file in self.files))

    @property
    def size(self) -> int:
        """Plain bytes of its files."""
        return sum(file[2] for file in self.files)

    def perform(self, tools: Tools) -> None:
        """Writes the files and compares each with its digest; what differs is fetched once more.

        Raises DigestMismatch naming the files that still differ, BadStore, InsufficientStorage, NotPermitted.
        """
        store = tools.open.store(self.store)
        try:
            with Tree(self.into) as tree:
                bad = self._write(store, tree, self.frames, self.files, tools)
                if bad:
                    bad = self._write(store, tree, self.frames, bad, tools)
        except FrameError as error:
            raise self._mismatch("its end differs from the manifest", []) from error
        if bad:
            raise self._mismatch("files differ from the manifest after a second reading", bad)
        journal.append(self.journal, self.key)

    def _mismatch(self, cause: str, files: Sequence[Wanted]) -> DigestMismatch:
        return DigestMismatch(
            "unpack",
            f"{self.store.url}/{bundle_key(self.bundle)}",
            cause,
            "check the store (dsctl store check) and pack the source anew",
            [file[0] for file in files],
        )

    def _write(
        self, store: Store, tree: Tree, frames: Sequence[Frame], files: Sequence[Wanted], tools: Tools
    ) -> list[Wanted]:
        """Writes files and returns those that differ from their digest; FrameError if the frames' end does."""
        bad = []
        size = count = 0
        with FrameReader(store, self.bundle, frames, tools.slow) as reader:
            for file in files:
                try:
                    same = _write_file(tree, file, reader)
                except FrameError:
                    same = False
                except OSError as error:
                    raise tree.explain(file[0], error) from error
                if not same:
                    bad.append(file)
                    continue
                size, count = size + file[2], count + 1
                if count >= TELL_FILES or size >= TELL_BYTES:
                    tools.progress(size, count)
                    size = count = 0
            if not bad:
                reader.finish()
        tools.progress(size, count)
        return bad


def _write_file(tree: Tree, file: Wanted, reader: "FrameReader") -> bool:
    """Makes one file; whether its content is what the manifest says."""
    path, executable, size, mtime_ns, content, offset = file
    data = reader.whole(offset, size)
    fd = tree.create(path, executable)
    try:
        if data is not None:
            written = os.write(fd, data)
            if written < size:
                write_all(fd, data[written:])
            same = xxhash.xxh3_128_digest(data) == content
        else:
            same = _write_pieces(fd, reader.pieces(offset, size)) == content
        os.utime(fd, ns=(mtime_ns, mtime_ns))
    finally:
        os.close(fd)
    return same


def _write_pieces(fd: int, pieces: Iterable[memoryview]) -> bytes:
    digest = xxhash.xxh3_128()
    for piece in pieces:
        write_all(fd, piece)
        digest.update(piece)
    return digest.digest()


class FrameError(Exception):
    """A frame's stored bytes are not those that the manifest describes."""


class FrameReader:
    """Reads plain bytes of a bundle by offset, forwards.

    If reading turns out to be waiting, the store joins `slow`, of which the next frames are read while one is used.
    """

    def __init__(self, store: Store, bundle: str, frames: Sequence[Frame], slow: set[str]) -> None:
        self._store = store
        self._slow = slow
        self._key = bundle_key(bundle)
        self._frames = frames
        self._starts = [frame.start for frame in frames]
        # The frame that is decompressed now: its bytes, and where they begin and end in the plain stream.
        self._plain: memoryview = memoryview(b"")
        self._begin = self._end = 0
        self._decompressor = zstandard.ZstdDecompressor()
        self._ahead: dict[int, Future[bytes]] = {}
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> "FrameReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def whole(self, offset: int, size: int) -> memoryview | None:
        """The bytes from `offset` if they lie in one frame, else None; raises FrameError like `pieces`."""
        if offset >= self._end or offset < self._begin:
            if size == 0:
                return self._plain[:0]
            self._turn_to(offset)
        at = offset - self._begin
        return self._plain[at : at + size] if offset + size <= self._end else None

    def pieces(self, offset: int, size: int) -> Iterator[memoryview]:
        """The bytes from `offset`, a frame at a time; raises FrameError for a frame that is not as described."""
        while size > 0:
            if not self._begin <= offset < self._end:
                self._turn_to(offset)
            piece = self._plain[offset - self._begin :][:size]
            yield piece
            offset += len(piece)
            size -= len(piece)

    def finish(self) -> None:
        """Checks the last frame too, which is tar's end mark where the bundle ends; raises FrameError."""
        last = self._frames[-1].start if self._frames else -1
        if self._end <= last:
            try:
                self._turn_to(last)
            except FrameError:  # like a file: read once more
                self._turn_to(last)

    def _turn_to(self, offset: int) -> None:
        index = bisect_right(self._starts, offset) - 1
        frame = self._frames[index]
        if not frame.start <= offset < frame.start + frame.plain:
            raise FrameError
        self._plain = memoryview(self._decode(index))
        self._begin, self._end = frame.start, frame.start + frame.plain

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
        """The stored bytes of a frame; those after it are asked for meanwhile, where that saves time.

        It costs some: threads take turns with the one that writes files.
        """
        url = self._store.location.url
        if not self._store.remote and url not in self._slow:
            before = waits()
            stored = self._read(index)
            if waits() - before > len(stored) // WAIT_BYTES:
                self._slow.add(url)
            return stored
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - fast stores are read without

            self._executor = ThreadPoolExecutor(FRAMES_AHEAD)
        for later in range(index, min(index + 1 + FRAMES_AHEAD, len(self._frames))):
            if later not in self._ahead:
                self._ahead[later] = self._executor.submit(self._read, later)
        return self._ahead.pop(index).result()

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
        self._opened: dict[int, _Opened] = {}

    def add(self, entry: Entry) -> Sequence[Unpack]:
        """Adds a file; gives the jobs that are complete now."""
        index = entry.bundle
        opened = self._opened.get(index)
        if opened is not None and opened.begin <= entry.offset < opened.end:
            opened.files.append(entry)
            if len(opened.files) == JOB_FILES:
                opened.end = min(opened.end, self._frame_end(index, entry.offset))
            return ()
        jobs = [] if opened is None else [self._job(index)]
        if len(self._opened) >= OPEN_JOBS:
            jobs.append(self._job(next(iter(self._opened))))
        first = self._frame(index, entry.offset).start
        self._opened[index] = _Opened(entry.offset, self._frame_end(index, first + JOB_BYTES - 1), [entry])
        return jobs

    def rest(self) -> Iterator[Unpack]:
        """The jobs that are left."""
        while self._opened:
            yield self._job(next(iter(self._opened)))

    def _job(self, index: int) -> Unpack:
        entries = sorted(self._opened.pop(index).files, key=attrgetter("offset"))
        files = tuple([(e.path, e.executable, e.size, e.mtime_ns, e.content, e.offset) for e in entries])
        frames: dict[int, Frame] = {}
        end = -1
        for entry in entries:
            last = entry.offset + entry.size - 1
            if last >= end:
                starts = self._starts[index]
                for at in range(bisect_right(starts, entry.offset) - 1, bisect_right(starts, last)):
                    frames[at] = self._bundles[index].frames[at]
                    end = frames[at].start + frames[at].plain
        bundle = self._bundles[index]
        if len(bundle.frames) - 2 in frames:
            # Tar's end mark holds nothing of a file, but a damaged bundle is never taken for a whole one.
            frames[len(bundle.frames) - 1] = bundle.frames[-1]
        return Unpack(self._store, bundle.digest, tuple(frames.values()), files, self._into, self._journal)

    def _frame(self, index: int, offset: int) -> Frame:
        return self._bundles[index].frames[bisect_right(self._starts[index], offset) - 1]

    def _frame_end(self, index: int, offset: int) -> int:
        frame = self._frame(index, offset)
        return frame.start + frame.plain


class _Opened:
    """A job that is being filled: where in the bundle's plain stream it begins and ends, and its files."""

    def __init__(self, begin: int, end: int, files: list[Entry]) -> None:
        self.begin = begin
        self.end = end
        self.files = files
