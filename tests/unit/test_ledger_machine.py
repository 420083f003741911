"""Ledger, eviction and leases together, step by step beside a model that is too simple to be wrong.

The catalog and the leases are real, on a folder in memory; the disk's room and the time are the test's own.
"""

import itertools
import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from dsagent.core.errors import InsufficientStorage, InUse, NotCached
from dsagent.core.ports import CachedVersion, Reservation
from dsagent.core.space import HEADROOM, Disk, Space
from dsagent.service import evict, leases, space
from dsagent.service.leases import ProcessLease
from dsagent.service.node import held
from tests.fakes.node import ManualClock
from tests.support import nodes
from tests.support.nodes import node_at, published

BLOCK = 4096
TOTAL = Space(100 * BLOCK, 1000)
KEPT_INODES = TOTAL.inodes // 20
FOREVER = timedelta(days=1000)
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

names = st.sampled_from(["imgs", "coco", "text"])
needs = st.builds(Space, st.integers(1, 40).map(lambda blocks: blocks * BLOCK), st.integers(1, 400))
hours = st.integers(1, 5)


class OccupiedDisk:
    """A filesystem on which every version takes what it was published with, until its folder is deleted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.sizes: dict[str, Space] = {}

    def measure(self) -> Disk:
        folders = [*self._root.glob("versions/*/*/*"), *self._root.glob("trash/*")]
        taken = sum((self.sizes[folder.name.partition(".")[0]] for folder in folders), Space())
        return Disk(TOTAL, TOTAL - taken, BLOCK, "ext4")


@dataclass
class Model:
    """What should be there: versions by id, promises by flight, and who uses what until when."""

    versions: dict[str, CachedVersion] = field(default_factory=dict)
    promises: dict[str, Space] = field(default_factory=dict)
    until: dict[tuple[str, str], timedelta] = field(default_factory=dict)
    now: timedelta = timedelta()

    def available(self) -> Space:
        used = sum((version.allocated for version in self.versions.values()), Space())
        promised = sum(self.promises.values(), Space())
        return TOTAL - used - promised - Space(0, KEPT_INODES)

    def leased(self, version_id: str) -> bool:
        return any(of == version_id and end > self.now for (of, _), end in self.until.items())

    def to_evict(self, missing: Space, order: list[str]) -> list[str] | None:
        """The versions that must go, or None if all that may are not enough."""
        taken: list[str] = []
        freed = Space()
        for version_id in order:
            if freed.covers(missing):
                break
            if not self.leased(version_id):
                taken.append(version_id)
                freed += self.versions[version_id].allocated
        return taken if freed.covers(missing) else None


class Cache(RuleBasedStateMachine):
    flights = Bundle("flights")
    held_leases = Bundle("held_leases")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.disk = OccupiedDisk(self.folder)
        self.clock = ManualClock()
        self.node = node_at(self.folder, self.clock, self.disk)
        self.node.prepare()
        self.model = Model()
        self.locks: dict[str, ExitStack] = {}
        self.leases: list[ProcessLease] = []
        self.counter = 0
        # Versions that were used last at the same time go in the order of their ids.
        ids = itertools.count(1)
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(nodes, "new_id", lambda: f"{next(ids):016x}")

    def teardown(self) -> None:
        self.patched.undo()
        for lock in self.locks.values():
            lock.close()
        for lease in self.leases:
            lease.release()
        shutil.rmtree(self.folder)

    @rule(target=flights, need=needs)
    def reserve(self, need: Space) -> str:
        """A flight asks for room; it gets it after evicting the right ones, or an error and nothing has changed."""
        self.counter += 1
        flight = f"flight-{self.counter}"
        lock = self.locks[flight] = ExitStack()
        lock.enter_context(held(self.node.lock(flight), waiting=lambda: pytest.fail("nobody holds it")))
        missing = need.scaled(HEADROOM) - self.model.available()
        expected = [] if Space().covers(missing) else self.model.to_evict(missing, self._longest_unused_first())
        if expected is None:
            with pytest.raises(InsufficientStorage):
                space.reserve(self.node, {flight: need}, "imgs", ())
            lock.close()
            return "none"
        evicted = space.reserve(self.node, {flight: need}, "imgs", ())
        assert [one.version for one in evicted] == [self.model.versions[one].version for one in expected]
        self._forget(expected)
        self.model.promises[flight] = need
        return flight

    @rule(flight=consumes(flights), name=names)
    def publish(self, flight: str, name: str) -> None:
        """The flight ends well: what was promised is taken."""
        if flight not in self.model.promises:
            return
        need = self.model.promises.pop(flight)
        with self.node.catalog.decide() as decision:
            decision.release(flight)
        self.locks[flight].close()
        self._publish(name, need)

    @rule(flight=consumes(flights))
    def kill(self, flight: str) -> None:
        """The flight's processes end: its promise is dropped by whoever asks next."""
        if self.model.promises.pop(flight, None):
            self.locks[flight].close()

    @rule(data=st.data())
    @precondition(lambda self: self.model.versions)
    def use(self, data: st.DataObject) -> None:
        version = self._draw(data)
        self.counter += 1
        os.utime(self.node.folder(version), (self.counter, self.counter))

    @rule(target=held_leases, data=st.data())
    @precondition(lambda self: self.model.versions)
    def hold(self, data: st.DataObject) -> ProcessLease:
        version = self._draw(data)
        lease = leases.hold(self.node, version, "a process")
        self.leases.append(lease)
        self.model.until[version.id, lease.info.id] = FOREVER
        return lease

    @rule(lease=consumes(held_leases))
    def release_held(self, lease: ProcessLease) -> None:
        lease.release()
        lease.release()
        # Not when the kernel's clock says: two within one of its ticks would be in any order.
        self.counter += 1
        os.utime(lease._folder, (self.counter, self.counter))
        self.model.until = {key: end for key, end in self.model.until.items() if key[1] != lease.info.id}

    @rule(data=st.data(), owner=st.sampled_from(["me", "you"]), length=hours)
    @precondition(lambda self: self.model.versions)
    def add(self, data: st.DataObject, owner: str, length: int) -> None:
        version = self._draw(data)
        leases.add_lease(self.node, version, owner, length * 3600)
        end = self.model.now + timedelta(hours=length)
        self.model.until[version.id, owner] = max(end, self.model.until.get((version.id, owner), end))

    @rule(data=st.data(), owner=st.sampled_from(["me", "you"]), length=hours)
    @precondition(lambda self: self.model.versions)
    def renew(self, data: st.DataObject, owner: str, length: int) -> None:
        version = self._draw(data)
        reference = f"{version.dataset}@{version.version}"
        if self.model.until.get((version.id, owner), timedelta()) > self.model.now:
            leases.renew(self.node, reference, owner, length * 3600)
            self.model.until[version.id, owner] = self.model.now + timedelta(hours=length)
        else:
            with pytest.raises(NotCached):
                leases.renew(self.node, reference, owner, length * 3600)

    @rule(length=hours)
    def time_passes(self, length: int) -> None:
        self.clock.advance(timedelta(hours=length))
        self.model.now += timedelta(hours=length)

    @rule(data=st.data(), force=st.booleans())
    @precondition(lambda self: self.model.versions)
    def evict(self, data: st.DataObject, force: bool) -> None:
        version = self._draw(data)
        reference = f"{version.dataset}@{version.version}"
        ends = [end for (of, _), end in self.model.until.items() if of == version.id and end > self.model.now]
        if FOREVER in ends or (ends and not force):
            with pytest.raises(InUse):
                evict.evict(self.node, reference, force, dry_run=False)
        else:
            assert evict.evict(self.node, reference, force, dry_run=False).freed_bytes == version.allocated.bytes
            self._forget([version.id])

    @rule(blocks=st.integers(1, 120), dry_run=st.booleans())
    def evict_need(self, blocks: int, dry_run: bool) -> None:
        size = blocks * BLOCK
        missing = Space(size - self.model.available().bytes)
        expected = [] if missing.bytes <= 0 else self.model.to_evict(missing, self._longest_unused_first())
        if dry_run and self._dead_promises():
            return  # it changes nothing, so the promises of killed flights still count
        if expected is None:
            with pytest.raises(InsufficientStorage):
                evict.evict_need(self.node, size, dry_run)
            return
        result = evict.evict_need(self.node, size, dry_run)
        assert [one.version for one in result.evicted] == [self.model.versions[one].version for one in expected]
        if not dry_run:
            self._forget(expected)

    @invariant()
    def what_is_there_is_what_should_be(self) -> None:
        assert {version.id for version in self.node.catalog.versions()} == set(self.model.versions)
        data = {path.parent.name for path in self.folder.glob("versions/*/*/*/data")}
        assert data == set(self.model.versions)

    @invariant()
    def no_byte_is_promised_twice(self) -> None:
        assert self.model.available().covers(Space())
        promised = {one.flight: one.space for one in self.node.catalog.reservations()}
        assert promised.items() >= self.model.promises.items()

    @invariant()
    def leases_are_those_that_live(self) -> None:
        leased = {of for (of, _), end in self.model.until.items() if end > self.model.now}
        assert leases.leased_versions(self.node) == leased

    def _publish(self, name: str, allocated: Space) -> None:
        self.counter += 1
        version = published(self.node, name, allocated, self.counter)
        self.disk.sizes[version.id] = allocated
        self.model.versions[version.id] = version

    def _draw(self, data: st.DataObject) -> CachedVersion:
        return self.model.versions[data.draw(st.sampled_from(sorted(self.model.versions)))]

    def _longest_unused_first(self) -> list[str]:
        versions = self.model.versions.values()
        used = {one.id: self.node.folder(one).stat().st_mtime_ns for one in versions}
        return sorted(used, key=lambda version_id: (used[version_id], version_id))

    def _forget(self, version_ids: list[str]) -> None:
        for version_id in version_ids:
            del self.model.versions[version_id]
            self.model.until = {key: end for key, end in self.model.until.items() if key[0] != version_id}

    def _dead_promises(self) -> list[Reservation]:
        return [one for one in self.node.catalog.reservations() if one.flight not in self.model.promises]


TestCache = Cache.TestCase
# Shrinking takes minutes, as every step is real: the steps of a failure are few enough to read.
TestCache.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
