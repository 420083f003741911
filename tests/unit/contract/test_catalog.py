"""What every Catalog must do, and what the node's other ports must."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dsagent.adapters.linux import LinuxDisk
from dsagent.adapters.sqlite_catalog import SqliteCatalog
from dsagent.core.datasets import DatasetKey
from dsagent.core.ports import CachedVersion, Catalog, DiskSpace, Reservation
from dsagent.core.space import Space
from tests.fakes.node import FixedDisk, MemoryCatalog

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def version(version_id: str, days: int = 0) -> CachedVersion:
    return CachedVersion(
        id=version_id,
        dataset=DatasetKey("_local", "images"),
        version="xxh3:" + "0" * 32,
        source="/data/images",
        fingerprint="f" * 32,
        files=3,
        bytes=5000,
        allocated=Space(12288, 4),
        published=DAY + timedelta(days=days),
        last_used=DAY + timedelta(days=days, hours=1),
        synced=False,
        mount="boot 1",
        shares=True,
    )


@dataclass
class Node:
    """A catalog; `keep` puts a version's folder on the disk, `reopened` is what another process sees."""

    catalog: Catalog
    keep: Callable[[CachedVersion], None]
    reopened: Callable[[], Catalog]


@pytest.fixture(params=["fake", "sqlite"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    if request.param == "fake":
        fake = MemoryCatalog()
        return Node(fake, lambda _: None, lambda: fake)

    def keep(kept: CachedVersion) -> None:
        folder = tmp_path / "versions" / kept.dataset.namespace / kept.dataset.name / kept.id
        folder.mkdir(parents=True)
        os.utime(folder, (kept.last_used.timestamp(), kept.last_used.timestamp()))

    def opened() -> Catalog:
        return SqliteCatalog(tmp_path / "catalog.sqlite", tmp_path)

    return Node(opened(), keep, opened)


def add(node: Node, *versions: CachedVersion) -> None:
    with node.catalog.decide() as decision:
        for one in versions:
            node.keep(one)
            decision.add(one)


def test_a_new_catalog_is_empty(node: Node) -> None:
    assert node.catalog.versions() == []
    assert node.catalog.reservations() == []


def test_versions_come_back_as_they_were_oldest_first(node: Node) -> None:
    older, newer = version("zz", days=1), version("aa", days=2)
    add(node, newer, older)
    assert node.reopened().versions() == [older, newer]


def test_a_version_with_a_known_id_replaces_it(node: Node) -> None:
    add(node, version("a"))
    synced = version("a")._replace(synced=True, fingerprint="")
    with node.catalog.decide() as decision:
        decision.add(synced)
    assert node.reopened().versions() == [synced]


def test_a_removed_version_is_forgotten(node: Node) -> None:
    add(node, version("a"), version("b", days=1))
    with node.catalog.decide() as decision:
        decision.remove("a")
        decision.remove("never there")
    assert node.reopened().versions() == [version("b", days=1)]


def test_versions_become_synced_and_keep_what_else_was_written_of_them(node: Node) -> None:
    add(node, version("a"), version("b", days=1), version("c", days=2))
    renewed = version("a")._replace(fingerprint="e" * 32)
    with node.catalog.decide() as decision:
        decision.add(renewed)
        decision.remove("c")
    assert node.reopened().unsynced() == [renewed, version("b", days=1)]
    with node.catalog.decide() as decision:
        decision.mark_synced(["a", "c"])
    assert node.reopened().versions() == [renewed._replace(synced=True), version("b", days=1)]
    assert node.reopened().unsynced() == [version("b", days=1)]
    assert node.reopened().ids() == {"a", "b"}


def test_who_has_the_lock_reads(node: Node) -> None:
    add(node, version("a"))
    with node.catalog.lock():
        assert node.catalog.versions() == [version("a")]
        assert node.catalog.ids() == {"a"}
    assert node.catalog.reservations() == []


def test_promises_are_set_changed_and_dropped(node: Node) -> None:
    with node.catalog.decide() as decision:
        decision.reserve(Reservation("one", Space(10, 1)))
        decision.reserve(Reservation("two", Space(20, 2)))
        decision.reserve(Reservation("one", Space(15, 1)))
    assert node.reopened().reservations() == [
        Reservation("one", Space(15, 1)),
        Reservation("two", Space(20, 2)),
    ]
    with node.catalog.decide() as decision:
        decision.release("one")
        decision.release("never there")
    assert node.reopened().reservations() == [Reservation("two", Space(20, 2))]


def test_a_decision_that_fails_leaves_everything_as_it_was(node: Node) -> None:
    add(node, version("a"))

    def decide_and_fail() -> None:
        with node.catalog.decide() as decision:
            decision.remove("a")
            decision.reserve(Reservation("one", Space(10, 1)))
            raise KeyError

    with pytest.raises(KeyError):
        decide_and_fail()
    assert node.reopened().versions() == [version("a")]
    assert node.reopened().reservations() == []


def test_readers_see_what_was_before_until_the_decision_ends(node: Node) -> None:
    add(node, version("a"))
    with node.catalog.decide() as decision, ThreadPoolExecutor(1) as executor:
        decision.remove("a")
        assert executor.submit(node.reopened().versions).result() == [version("a")]
    assert node.catalog.versions() == []


def test_one_decision_at_a_time_counts_what_the_ones_before_promised(node: Node) -> None:
    def promise(number: int) -> bool:
        with node.catalog.decide() as decision:
            taken = sum(one.space.bytes for one in node.catalog.reservations())
            if taken + 10 > 50:
                return False
            decision.reserve(Reservation(f"flight {number}", Space(10, 1)))
            return True

    with ThreadPoolExecutor(12) as executor:
        assert sum(executor.map(promise, range(12))) == 5
    assert len(node.catalog.reservations()) == 5


@pytest.mark.parametrize("kind", ["fake", "linux"])
def test_a_disk_has_no_more_free_than_there_is(kind: str, tmp_path: Path) -> None:
    disk: DiskSpace = LinuxDisk(str(tmp_path)) if kind == "linux" else FixedDisk(Space(1000, 10), Space(900, 9))
    found = disk.measure()
    assert 0 < found.free.bytes <= found.total.bytes
    assert found.block > 0
    assert found.total.inodes == 0 or 0 < found.free.inodes <= found.total.inodes
