"""Leases by time."""

from datetime import timedelta
from pathlib import Path

import pytest

from dsagent.core.errors import InsufficientStorage, InUse, NotCached, UsageError
from dsagent.core.space import Space
from dsagent.service import leases
from dsagent.service.evict import evict, evict_need
from dsagent.service.node import Node
from tests.fakes.node import FixedDisk, ManualClock
from tests.integration.leases.conftest import assert_free
from tests.support.nodes import node_at, published


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(scratch: Path, clock: ManualClock) -> Node:
    return node_at(scratch / "root", clock)


def test_a_lease_by_time_outlives_its_process_and_ends_in_time(timed: Node, clock: ManualClock) -> None:
    published(timed, "imgs")
    info = leases.add(timed, "imgs", "me", 3600)
    assert info.expires == clock.now() + timedelta(hours=1)
    clock.advance(timedelta(minutes=59))
    assert leases.list_leases(timed) == [info]
    with pytest.raises(InUse):
        evict(timed, "imgs", force=False, dry_run=False)
    clock.advance(timedelta(minutes=2))
    assert_free(timed)


def test_one_owner_has_one_lease_on_a_version_and_it_never_gets_shorter(timed: Node) -> None:
    published(timed, "imgs")
    first = leases.add(timed, "imgs", "me", 3600)
    assert leases.add(timed, "imgs", "me", 60).expires == first.expires
    longer = leases.add(timed, "imgs", "me", 7200)
    assert longer.id == first.id
    assert leases.list_leases(timed) == [longer]
    assert leases.add(timed, "imgs", "you", 60).id != first.id


def test_renewing_counts_from_now(timed: Node, clock: ManualClock) -> None:
    published(timed, "imgs")
    info = leases.add(timed, "imgs", "me", 3600)
    clock.advance(timedelta(minutes=30))
    renewed = leases.renew(timed, info.id, None, 60)
    assert renewed.expires == clock.now() + timedelta(seconds=60)
    assert leases.list_leases(timed) == [renewed]


def test_by_its_owner_the_lease_by_time_is_meant_beside_one_of_a_process(timed: Node) -> None:
    version = published(timed, "imgs")
    held = leases.hold(timed, version, "me")
    try:
        info = leases.add(timed, "imgs", "me", 3600)
        assert leases.renew(timed, "imgs", "me", 60).id == info.id
        assert leases.release(timed, "imgs", "me").id == info.id
        with pytest.raises(UsageError, match="a process holds it"):
            leases.release(timed, "imgs", "me")
    finally:
        held.release()


def test_releasing_by_owner_or_id(timed: Node) -> None:
    version = published(timed, "imgs")
    mine = leases.add(timed, "imgs", "me", 60)
    yours = leases.add(timed, f"imgs@{version.version}", "you", 60)
    with pytest.raises(UsageError, match="several"):
        leases.release(timed, "imgs", None)
    assert leases.release(timed, "imgs", "me") == mine
    assert leases.release(timed, yours.id, None) == yours
    with pytest.raises(NotCached):
        leases.release(timed, "imgs", "me")
    assert_free(timed)


def test_a_lease_of_a_process_is_not_changed_from_outside(timed: Node) -> None:
    lease = leases.hold(timed, published(timed, "imgs"), "me")
    with pytest.raises(UsageError, match="process"):
        leases.release(timed, lease.info.id, None)
    with pytest.raises(UsageError, match="process"):
        leases.renew(timed, "imgs", "me", 60)
    lease.release()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e30])
def test_an_impossible_time_is_refused(timed: Node, seconds: float) -> None:
    published(timed, "imgs")
    with pytest.raises(UsageError):
        leases.add(timed, "imgs", "me", seconds)
    assert leases.list_leases(timed) == []


def test_force_ends_leases_by_time_but_not_one_of_a_process(timed: Node) -> None:
    version = published(timed, "imgs")
    leases.add(timed, "imgs", "me", 3600)
    held = leases.hold(timed, version, "a test")
    with pytest.raises(InUse, match="a test"):
        evict(timed, "imgs", force=True, dry_run=False)
    assert len(leases.list_leases(timed)) == 2
    held.release()
    evict(timed, "imgs", force=True, dry_run=False)
    assert leases.list_leases(timed) == []


def test_a_pod_counts_as_a_lease_even_if_the_catalog_is_lost(timed: Node) -> None:
    version = published(timed, "imgs")
    pod = timed.root / "pods" / "0f3c-uid"
    pod.mkdir(parents=True)
    (pod / "imgs").symlink_to(f"../../versions/_local/imgs/{version.id}")
    (timed.root / "catalog.sqlite").unlink()
    assert [(info.owner, info.dataset) for info in leases.list_leases(timed)] == [("task 0f3c-uid", "imgs")]
    with pytest.raises(InUse):
        evict(timed, "imgs", force=True, dry_run=False)
    (pod / "imgs").unlink()
    (pod / "imgs").symlink_to("../../elsewhere")
    assert_free(timed)


def test_a_lease_by_time_survives_the_loss_of_the_catalog(timed: Node) -> None:
    published(timed, "imgs")
    info = leases.add(timed, "imgs", "me", 3600)
    (timed.root / "catalog.sqlite").unlink()
    assert leases.list_leases(timed) == [info]
    with pytest.raises(InUse):
        evict(timed, "imgs", force=False, dry_run=False)


def test_a_lease_file_that_was_cut_short_is_no_lease(timed: Node) -> None:
    version = published(timed, "imgs")
    leases.add(timed, "imgs", "me", 3600)
    (path,) = timed.locks.glob(f"lease-{version.id}.*")
    path.write_bytes(path.read_bytes()[:20])
    assert_free(timed)


def test_eviction_by_need_passes_over_what_is_leased(scratch: Path, clock: ManualClock) -> None:
    disk = FixedDisk(Space(1 << 30, 0), Space(1 << 20, 0))
    node = node_at(scratch / "root", clock, disk)
    published(node, "imgs", used=1)
    published(node, "coco", used=2)
    published(node, "text", used=3)
    leases.add(node, "imgs", "me", 3600)
    evicted = evict_need(node, (1 << 20) + 4096, dry_run=False).evicted
    assert [one.dataset for one in evicted] == ["coco"]
    with pytest.raises(InsufficientStorage, match="4096 and 1 are leased"):
        evict_need(node, (1 << 20) + 8192, dry_run=False)
    assert {version.dataset.name for version in node.catalog.versions()} == {"imgs", "text"}
