"""What the agent has done since it started."""

import threading
from collections import Counter
from collections.abc import Sequence

from dsagent.core.errors import DsagentError
from dsagent.core.eviction import Evicted
from dsagent.service.results import CacheResult, Outcome


class Counts:
    """Counters that only grow. `listings`: sources listed or stores' manifests read, once for all who ask at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.listings = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.errors: Counter[str] = Counter()
        self.fetched_bytes = self.fetched_files = 0
        self.evicted = self.evicted_bytes = 0

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

    def gone(self, evicted: Sequence[Evicted]) -> None:
        """Versions were evicted."""
        with self._lock:
            self.evicted += len(evicted)
            self.evicted_bytes += sum(one.bytes for one in evicted)

    def failed(self, error: DsagentError) -> None:
        """An errand failed."""
        with self._lock:
            self.errors[type(error).__name__] += 1
