"""From an unpacked source to files: the job that reads files and writes those that are new."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dsagent.core.entries import Stamp
from dsagent.core.errors import SourceError
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.ports import Location
from dsagent.engine import journal
from dsagent.engine.crew import Tools
from dsagent.engine.reading import Reading, Unreadable, read_all
from dsagent.engine.tree import Tree, write_all

JOB_BYTES = 32 << 20
JOB_FILES = 256


def left_out(size: int, content: bytes, known: bytes) -> bool:
    """Whether a file is not written because its content is the one `known`: it came as one piece."""
    return size <= FRAME_BYTES and content == known


class Copy(NamedTuple):
    """Reads `files` of `source` and writes them below `into` ("": only hashes them).

    `known` has for each file the digest that the version before has at this path, or b"": see `left_out`.
    """

    source: Location
    files: tuple[Stamp, ...]
    known: tuple[bytes, ...]
    into: str = ""
    journal: str = ""

    @property
    def key(self) -> str:
        """The job's name in the journal."""
        stamps = (part for file in self.files for part in (file.path, file.mtime_ns, file.token))
        return journal.job_key(self.source.url, *stamps, *self.known)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    def perform(self, tools: Tools) -> list[bytes | Unreadable]:
        """The digest of each file; raises SourceChanged, InsufficientStorage, NotPermitted."""
        put = _write_below(Tree(self.into)) if self.into else _drain
        results: list[bytes | Unreadable] = []
        readings = read_all(tools.open.source(self.source), self.files, tools.slow)
        for file, known, reading in zip(self.files, self.known, readings, strict=True):
            results.append(_copy(file, known, reading, put))
            tools.progress(file.size, 1)
        if self.journal and not any(isinstance(result, Unreadable) for result in results):
            journal.append(self.journal, self.key, [result for result in results if isinstance(result, bytes)])
        return results


Put = Callable[[Stamp, Reading], None]


def _copy(file: Stamp, known: bytes, reading: Reading | Unreadable, put: Put) -> bytes | Unreadable:
    if isinstance(reading, Unreadable):
        return reading
    try:
        if not (reading.whole and left_out(file.size, reading.content(), known)):
            put(file, reading)
    except SourceError as error:
        return Unreadable(file.path, error.cause)
    return reading.content()


def _drain(_file: Stamp, reading: Reading) -> None:
    for _ in reading.rest():
        pass


def _write_below(tree: Tree) -> Put:
    def write(file: Stamp, reading: Reading) -> None:
        try:
            fd = tree.create(file.path, file.executable)
            try:
                write_all(fd, reading.first)
                for chunk in reading.rest():
                    write_all(fd, chunk)
                os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))
            finally:
                os.close(fd)
        except OSError as error:
            raise tree.explain(file.path, error) from error

    return write


def copy_jobs(
    source: Location, files: Sequence[Stamp], known: Sequence[bytes], into: str = "", journal_path: str = ""
) -> Iterator[Copy]:
    """Jobs of up to JOB_FILES and JOB_BYTES."""
    begin = size = 0
    for index, file in enumerate(files):
        size += file.size
        if index - begin >= JOB_FILES or (size > JOB_BYTES and index > begin):
            yield Copy(source, tuple(files[begin:index]), tuple(known[begin:index]), into, journal_path)
            begin, size = index, file.size
    if begin < len(files):
        yield Copy(source, tuple(files[begin:]), tuple(known[begin:]), into, journal_path)
