"""The node in memory: its catalog, disk and clock."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from dsagent.core.datasets import DatasetKey
from dsagent.core.ports import CachedVersion, Decision, Reservation
from dsagent.core.space import Disk, Space


class ManualClock:
    """Stands still until it is advanced."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def advance(self, by: timedelta) -> None:
        assert by >= timedelta()
        self._now += by


class FixedDisk:
    """A filesystem of which tests say what it has."""

    def __init__(self, total: Space, free: Space, block: int = 4096, kind: str = "ext4") -> None:
        self.disk = Disk(total, free, block, kind)

    def measure(self) -> Disk:
        return self.disk


class MemoryCatalog:
    """A catalog whose decisions are copies, kept if they end well."""

    engine = "memory"

    def __init__(self) -> None:
        self._state = _State({}, {})
        self._lock = threading.Lock()
        self._decider: int | None = None

    def versions(self, dataset: DatasetKey | None = None) -> list[CachedVersion]:
        found = [version for version in self._state.versions.values() if dataset in (None, version.dataset)]
        return sorted(found, key=lambda version: (version.published, version.id))

    def ids(self) -> set[str]:
        return set(self._state.versions)

    def unsynced(self) -> list[CachedVersion]:
        return [version for version in self.versions() if not version.synced]

    def reservations(self) -> list[Reservation]:
        return [self._state.reservations[flight] for flight in sorted(self._state.reservations)]

    @contextmanager
    def decide(self) -> Iterator[Decision]:
        assert self._decider != threading.get_ident(), "decisions do not nest"
        with self._lock:
            self._decider = threading.get_ident()
            try:
                open_state = _State(dict(self._state.versions), dict(self._state.reservations))
                yield open_state
                self._state = open_state
            finally:
                self._decider = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        assert self._decider != threading.get_ident(), "decisions do not nest"
        with self._lock:
            yield


class _State:
    def __init__(self, versions: dict[str, CachedVersion], reservations: dict[str, Reservation]) -> None:
        self.versions = versions
        self.reservations = reservations

    def add(self, version: CachedVersion) -> None:
        self.versions[version.id] = version

    def mark_synced(self, version_ids: Iterable[str]) -> None:
        for version_id in version_ids:
            if version_id in self.versions:
                self.versions[version_id] = self.versions[version_id]._replace(synced=True)

    def remove(self, version_id: str) -> None:
        self.versions.pop(version_id, None)

    def reserve(self, reservation: Reservation) -> None:
        self.reservations[reservation.flight] = reservation

    def release(self, flight: str) -> None:
        self.reservations.pop(flight, None)
