"""What a source holds, by its listing alone."""

import pickle
import time
from collections.abc import Iterator

import zstandard

from dsagent.core.entries import SETTLED_NS, SYMLINK, Fingerprint, Stamp, newest_ns
from dsagent.core.errors import SourceError
from dsagent.core.manifest import Tally, Totals
from dsagent.core.ports import Source
from dsagent.core.symlinks import SymlinkCheck

BLOCK_ENTRIES = 10_000


class Listing:
    """All stamps of a source, taken at once and kept compressed: some 20 bytes an entry.

    `digest` is the fingerprint of this moment; `fingerprint` is the same, or empty if a stamp is too young to be
    trusted later. `special` are the entries that were left out.
    """

    def __init__(self, source: Source, skip_special: bool) -> None:
        self.source = source
        self.scanned_ns = time.time_ns()
        self.special: list[bytes] = []
        self._blocks: list[bytes] = []
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._fingerprint = Fingerprint()
        self._tally = Tally()
        self._symlinks = SymlinkCheck()
        self._newest_ns = 0
        block: list[Stamp] = []
        for stamp in source.scan(self.special if skip_special else None):
            block.append(stamp)
            if stamp.kind == SYMLINK:
                self._symlinks.add(stamp.path, stamp.token)
            if len(block) >= BLOCK_ENTRIES:
                self._keep(block)
                block = []
        self._keep(block)
        if leaving := self._symlinks.leaving():
            raise SourceError(
                "keep all entries of",
                source.location.url,
                "symlinks lead up again through other symlinks, so that they may leave the tree",
                "let them point to their targets directly",
                leaving,
            )
        self.totals: Totals = self._tally.result()
        self.digest = self._fingerprint.hexdigest()
        self.fingerprint = self.digest if self._newest_ns < self.scanned_ns - SETTLED_NS else ""

    def __iter__(self) -> Iterator[Stamp]:
        """The stamps in path order."""
        decompressor = zstandard.ZstdDecompressor()
        for block in self._blocks:
            yield from map(Stamp._make, pickle.loads(decompressor.decompress(block)))  # noqa: S301 - made below

    def _keep(self, block: list[Stamp]) -> None:
        self._newest_ns = max(self._newest_ns, newest_ns(block))
        self._fingerprint.add(block)
        self._tally.add(block)
        self._blocks.append(self._compressor.compress(pickle.dumps(list(map(tuple, block)), protocol=5)))
