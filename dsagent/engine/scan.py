"""What a source holds, by its listing alone."""

import pickle
import time
from collections.abc import Callable, Iterator

import zstandard

from dsagent.core.entries import SETTLED_NS, SYMLINK, Fingerprint, Stamp, newest_ns
from dsagent.core.errors import SourceError
from dsagent.core.manifest import Tally, Totals
from dsagent.core.ports import Source
from dsagent.core.symlinks import SymlinkCheck

BLOCK_ENTRIES = 10_000


class Listing:
    """All stamps of a source, taken once and kept compressed: some 20 bytes an entry.

    `totals`; `digest`, the fingerprint of this moment; `fingerprint`, the same, or empty if a stamp is too young to be
    trusted later; `special`, the entries that were left out. With `ended` the first stamps are given before the others
    are listed: until `ended` was called, with the totals, only `source` and `scanned_ns` are known. Raises SourceError
    and NotPermitted, then or here.
    """

    totals: Totals
    digest: str
    fingerprint: str

    def __init__(self, source: Source, skip_special: bool, ended: Callable[[Totals], None] | None = None) -> None:
        self.source = source
        self.scanned_ns = time.time_ns()
        self.special: list[bytes] = []
        self._blocks: list[bytes] = []
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._fingerprint = Fingerprint()
        self._tally = Tally()
        self._symlinks = SymlinkCheck()
        self._newest_ns = 0
        self._ended = ended
        self._scan = self._listed(source.scan(self.special if skip_special else None))
        if ended is None:
            self.finish()

    def finish(self) -> None:
        """Lists the rest of the source, if there is one."""
        for _ in self._scan:
            pass

    def __iter__(self) -> Iterator[Stamp]:
        """The stamps in path order."""
        first = next(self._scan, None)
        if first is not None:
            yield from first
            self.finish()  # not block by block: whoever waits wants to know the totals soon
        decompressor = zstandard.ZstdDecompressor()
        for kept in self._blocks[0 if first is None else 1 :]:
            yield from map(Stamp._make, pickle.loads(decompressor.decompress(kept)))  # noqa: S301 - made below

    def _listed(self, stamps: Iterator[Stamp]) -> Iterator[list[Stamp]]:
        """The stamps in blocks, each of which was kept."""
        block: list[Stamp] = []
        for stamp in stamps:
            block.append(stamp)
            if stamp.kind == SYMLINK:
                self._symlinks.add(stamp.path, stamp.token)
            if len(block) >= BLOCK_ENTRIES:
                self._keep(block)
                yield block
                block = []
        self._keep(block)
        self._end()
        yield block

    def _end(self) -> None:
        if leaving := self._symlinks.leaving():
            raise SourceError(
                "keep all entries of",
                self.source.location.url,
                "symlinks lead up again through other symlinks, so that they may leave the tree",
                "let them point to their targets directly",
                leaving,
            )
        self.totals = self._tally.result()
        self.digest = self._fingerprint.hexdigest()
        self.fingerprint = self.digest if self._newest_ns < self.scanned_ns - SETTLED_NS else ""
        if self._ended is not None:
            self._ended(self.totals)

    def _keep(self, block: list[Stamp]) -> None:
        self._newest_ns = max(self._newest_ns, newest_ns(block))
        self._fingerprint.add(block)
        self._tally.add(block)
        self._blocks.append(self._compressor.compress(pickle.dumps(list(map(tuple, block)), protocol=5)))
