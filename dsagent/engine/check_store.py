"""Re-reading what a store holds: the jobs that hash a bundle, and the files in its frames."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import xxhash

from dsagent.core.entries import FILE, Entry
from dsagent.core.errors import BadStore
from dsagent.core.layout import bundle_key
from dsagent.core.manifest import FRAME_BYTES, Bundle, Frame
from dsagent.core.ports import Location
from dsagent.engine.crew import Tools
from dsagent.engine.unpack import FrameError, FrameReader, UnpackPlan, Wanted


class CheckBundle(NamedTuple):
    """Reads a bundle whole; returns why it is not the one its name and length say, or ""."""

    store: Location
    bundle: str
    stored: int

    def perform(self, tools: Tools) -> str:
        """Raises NotPermitted."""
        store = tools.open.store(self.store)
        key, digest, offset = bundle_key(self.bundle), xxhash.xxh3_128(), 0
        try:
            while piece := store.read(key, offset, FRAME_BYTES):
                digest.update(piece)
                offset += len(piece)
                tools.progress(len(piece), 0)
        except BadStore as error:
            return error.cause
        if offset != self.stored:
            return f"{offset} bytes instead of {self.stored}"
        return "" if digest.hexdigest() == self.bundle else "its digest is not the one in its name"


class CheckFiles(NamedTuple):
    """Decompresses frames of one bundle and returns the paths of the files in them that are not as recorded."""

    store: Location
    bundle: str
    frames: tuple[Frame, ...]
    files: tuple[Wanted, ...]

    def perform(self, tools: Tools) -> list[bytes]:
        """Raises NotPermitted."""
        bad = []
        store = tools.open.store(self.store)
        with FrameReader(store, self.bundle, self.frames, tools.slow) as reader:
            for path, _executable, size, _mtime, content, offset in self.files:
                if _digest(reader, offset, size) != content:
                    bad.append(path)
                tools.progress(0, 1)
        return bad


def _digest(reader: FrameReader, offset: int, size: int) -> bytes:
    """The digest of a file's bytes in a bundle; b"" if its frames cannot be read."""
    digest = xxhash.xxh3_128()
    try:
        for piece in reader.pieces(offset, size):
            digest.update(piece)
    except (FrameError, BadStore):
        return b""
    return digest.digest()


def file_checks(store: Location, bundles: Sequence[Bundle], entries: Iterable[Entry]) -> Iterator[CheckFiles]:
    """The jobs that check all files among `entries`, given in path order."""
    plan = UnpackPlan(store, bundles, "", "")
    for entry in entries:
        if entry.kind == FILE:
            yield from (CheckFiles(job.store, job.bundle, job.frames, job.files) for job in plan.add(entry))
    yield from (CheckFiles(job.store, job.bundle, job.frames, job.files) for job in plan.rest())
