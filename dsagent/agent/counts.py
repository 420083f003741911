"""What the agent has done since it started."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dsagent.core.errors import DsagentError
from dsagent.core.eviction import Evicted
from dsagent.service.results import CacheResult, Outcome

LATELY = 0.3  # what the newest flight counts in a rate
WORTH = 16 << 20  # bytes; less than that says more of beginnings and ends


class Rates(NamedTuple):
    """Bytes a second of whole flights, lately; 0 where none was measured. Plain bytes, of the flights that read a
    source, and of those that read a store: of `network` and `unpack` it is what both together reached, of `disk` the
    faster of the two.
    """

    source: int = 0
    network: int = 0
    disk: int = 0
    unpack: int = 0


class Counts:
    """Counters that only grow. `listings`: sources listed or stores' manifests read, once for all who ask at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.listings = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.errors: Counter[str] = Counter()
        self.fetched_bytes = self.fetched_files = 0
        self.evicted = self.evicted_bytes = 0
        self._from_source = self._from_store = 0.0

    def listed(self) -> None:
        """A source was asked what it has."""
        with self._lock:
            self.listings += 1

    def brought(self, result: CacheResult) -> None:
        """Something is present; a hit for each errand, however many tasks share it."""
        with self._lock:
            self.outcomes[result.outcome] += 1
            self.fetched_bytes += result.fetched_bytes
            self.fetched_files += result.files - result.reused_files if result.outcome != "hit" else 0

    def carried(self, size: int, seconds: float, packed: bool) -> None:
        """A flight has brought so many bytes."""
        if size < WORTH or seconds <= 0:
            return
        rate = size / seconds
        with self._lock:
            if packed:
                self._from_store = rate if not self._from_store else _mixed(self._from_store, rate)
            else:
                self._from_source = rate if not self._from_source else _mixed(self._from_source, rate)

    @property
    def rates(self) -> Rates:
        """How fast flights were lately."""
        with self._lock:
            source, store = int(self._from_source), int(self._from_store)
        return Rates(source, store, max(source, store), store)

    def gone(self, evicted: Sequence[Evicted]) -> None:
        """Versions were evicted."""
        with self._lock:
            self.evicted += len(evicted)
            self.evicted_bytes += sum(one.bytes for one in evicted)

    def failed(self, error: DsagentError) -> None:
        """An errand failed."""
        with self._lock:
            self.errors[type(error).__name__] += 1


def _mixed(before: float, now: float) -> float:
    return (1 - LATELY) * before + LATELY * now
