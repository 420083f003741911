"""The job that reads entries and makes compressed tar frames of them."""

from typing import Any, NamedTuple

import xxhash
import zstandard

from dsagent.core import tarstream
from dsagent.core.entries import FILE, Stamp
from dsagent.core.errors import SourceError
from dsagent.core.ports import Location
from dsagent.engine.changes import entry_of
from dsagent.engine.copy import left_out
from dsagent.engine.crew import Tools
from dsagent.engine.reading import Reading, Unreadable, read_all

_ZEROS = bytes(tarstream.RECORD)


class PackedFrame(NamedTuple):
    """A compressed frame: its stored bytes, how many plain bytes they hold, and their digest."""

    stored: bytes
    plain: int
    digest: bytes


# What became of an entry: its content, and where its data begin in the job's plain bytes; None if it was left out
# because its content is the one known. A plain tuple, because a million of them are pickled.
Placed = tuple[bytes, int | None]


def compress(plain: bytes, level: int) -> PackedFrame:
    """One zstd frame."""
    stored = zstandard.ZstdCompressor(level=level).compress(plain)
    return PackedFrame(stored, len(plain), xxhash.xxh3_128_digest(stored))


class PackFrames(NamedTuple):
    """Reads entries and sends them as PackedFrames: all in one, or a large file in pieces.

    `entries` are stamps as plain tuples, which are pickled in a third of the time. `known` has for each the content
    that the version before has at this path, or b"": see `left_out`.
    """

    source: Location
    entries: tuple[tuple[Any, ...], ...]
    known: tuple[bytes, ...]
    level: int

    def perform(self, tools: Tools) -> list[Placed | Unreadable]:
        """What became of each entry; raises SourceChanged and NotPermitted."""
        frames = _FrameWriter(tools, self.level)
        stamps = list(map(Stamp._make, self.entries))
        readings = read_all(tools.open.source(self.source), stamps, tools.slow)
        results: list[Placed | Unreadable] = []
        for stamp, known, reading in zip(stamps, self.known, readings, strict=True):
            results.append(_place(stamp, known, reading, frames))
            tools.progress(stamp.size, stamp.kind == FILE)
        frames.send()
        return results


def _place(stamp: Stamp, known: bytes, reading: Reading | Unreadable, frames: "_FrameWriter") -> Placed | Unreadable:
    if isinstance(reading, Unreadable):
        return reading
    if stamp.kind == FILE and reading.whole and left_out(stamp.size, reading.content(), known):
        return known, None
    header = tarstream.header(entry_of(stamp, stamp.token))
    offset = frames.length + len(header)
    padding = _ZEROS[: tarstream.padding(stamp.size)]
    if reading.whole:
        frames.add(header, reading.first, padding)
        return reading.content(), offset
    frames.add(header, reading.first)
    try:
        for chunk in reading.rest():
            frames.send()
            frames.add(chunk)
    except SourceError as error:
        return Unreadable(stamp.path, error.cause)
    frames.add(padding)
    return reading.content(), offset


class _FrameWriter:
    """Collects plain bytes and sends them as frames; `length` counts all that were added."""

    def __init__(self, tools: Tools, level: int) -> None:
        self._tools = tools
        self._level = level
        self._plain: list[bytes] = []
        self.length = 0

    def add(self, *parts: bytes) -> None:
        """Adds plain bytes to the frame."""
        self._plain += parts
        self.length += sum(map(len, parts))

    def send(self) -> None:
        """Sends what was collected, if anything, as one frame."""
        if plain := b"".join(self._plain):
            self._tools.send(compress(plain, self._level))
        self._plain.clear()
