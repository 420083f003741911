"""Reading many small files of a source, one after the other where that is fast, many at once where each must wait."""

import resource
import time
from collections.abc import Iterator, Sequence

import xxhash

from dsagent.core.entries import DIGEST_BYTES, FILE, SYMLINK, Stamp
from dsagent.core.errors import DsagentError, SourceError
from dsagent.core.ports import Source

# Measured over sshfs with 1 ms: with 16 threads in each of two workers it is as fast as with 64.
THREADS = 16
FILES_A_TURN = 8
PROBE_FILES = 4
# Files that take longer than this on average, and for which this thread has to wait, come over a network or from a
# disk that serves many requests at once. Time alone tells nothing on a busy machine.
SLOW_SECONDS = 0.2e-3


class Unreadable:
    """A file that could not be read, and why; kept as a value so that one error can name all of them."""

    def __init__(self, path: bytes, cause: str) -> None:
        self.path = path
        self.cause = cause


class Reading:
    """A file that was opened: its first piece of up to 8 MiB, the digest so far, and the pieces that follow."""

    __slots__ = ("_chunks", "_content", "_digest", "first", "whole")

    def __init__(self, source: Source, stamp: Stamp) -> None:
        self._chunks: Iterator[bytes] = iter(())
        self.first, self.whole = b"", True
        if stamp.kind != FILE:
            self._content = stamp.token if stamp.kind == SYMLINK else b""
            return
        chunks = source.chunks(stamp)
        self.first = next(chunks, b"")
        self.whole = len(self.first) == stamp.size
        if self.whole:
            next(chunks, None)  # lets the source look once more whether the file changed
            self._content = xxhash.xxh3_128_digest(self.first)
        else:
            self._chunks = chunks
            self._digest = xxhash.xxh3_128(self.first)

    def rest(self) -> Iterator[bytes]:
        """The pieces after the first; they enter the digest as they pass."""
        if self.whole:
            return
        for chunk in self._chunks:
            self._digest.update(chunk)
            yield chunk
        self._content = self._digest.digest()

    def content(self) -> bytes:
        """An entry's content (see Entry) once all pieces have passed."""
        return self._content


def read_all(source: Source, stamps: Sequence[Stamp], slow: set[str]) -> Iterator[Reading | Unreadable]:
    """A Reading for each entry, in order; raises SourceChanged and NotPermitted.

    Begins with one at a time; if that turns out to be waiting, the source joins `slow`, of which many files are
    read at once.
    """
    url = source.location.url
    remaining = stamps
    if not source.remote and url not in slow:
        began, before = time.perf_counter(), waits()
        probed = [_read(source, stamp) for stamp in stamps[:PROBE_FILES]]
        waiting = time.perf_counter() - began > PROBE_FILES * SLOW_SECONDS and waits() - before >= PROBE_FILES
        yield from probed
        remaining = stamps[PROBE_FILES:]
        if not waiting:
            for stamp in remaining:
                yield _read(source, stamp)
            return
        slow.add(url)
    turns = [remaining[at : at + FILES_A_TURN] for at in range(0, len(remaining), FILES_A_TURN)]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - fast sources are read without

    with ThreadPoolExecutor(THREADS) as executor:
        for turn in executor.map(lambda turn: [_read(source, stamp) for stamp in turn], turns):
            yield from turn


def waits() -> int:
    """How often this thread gave up its CPU of itself."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _read(source: Source, stamp: Stamp) -> Reading | Unreadable:
    try:
        return Reading(source, stamp)
    except SourceError as error:
        return Unreadable(stamp.path, error.cause)


def unreadable_error(source: str, unreadable: Sequence[Unreadable]) -> DsagentError:
    """One error that names all files that could not be read."""
    return SourceError(
        "read",
        source,
        f"{len(unreadable)} of its files cannot be read ({unreadable[0].cause})",
        "make them readable for the user who runs this, or remove them from the source",
        [one.path for one in unreadable],
    )


def split_digests(joined: bytes) -> list[bytes]:
    """Digests that lie one after the other."""
    return [joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)]
