"""What every Catalog must do."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dsagent.adapters.sqlite_catalog import SqliteCatalog
from dsagent.core.datasets import DatasetKey
from dsagent.core.ports import CachedVersion, Catalog, Reservation
from dsagent.core.space import Space
from tests.fakes.node import MemoryCatalog

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(params=["fake", "sqlite"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    return MemoryCatalog() if request.param == "fake" else SqliteCatalog(tmp_path / "catalog.sqlite", tmp_path)


def version_at(root: Path, name: str, published: datetime = NOON) -> CachedVersion:
    """A version whose folder is there."""
    key = DatasetKey("_local", name)
    folder = root / "versions" / key.namespace / name / f"id-{name}"
    folder.mkdir(parents=True)
    used = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    return CachedVersion(
        id=f"id-{name}",
        dataset=key,
        version="xxh3:" + "0" * 32,
        source="/a'b\"c ü",
        fingerprint="f00",
        files=3,
        bytes=1 << 40,
        allocated=Space((1 << 40) + 4096, 5),
        published=published,
        last_used=used,
        synced=True,
        mount="boot:7",
        shares=True,
    )


def test_there_is_nothing_at_first(catalog: Catalog) -> None:
    assert catalog.versions() == []
    assert catalog.reservations() == []


def test_what_a_decision_added_is_read_as_it_was(catalog: Catalog, tmp_path: Path) -> None:
    version = version_at(tmp_path, "a")
    with catalog.decide() as decision:
        decision.add(version)
    assert catalog.versions() == [version]


def test_adding_an_id_again_replaces(catalog: Catalog, tmp_path: Path) -> None:
    version = version_at(tmp_path, "a")
    with catalog.decide() as decision:
        decision.add(version)
    changed = replace(version, synced=False, shares=False, mount="", source="elsewhere")
    with catalog.decide() as decision:
        decision.add(changed)
    assert catalog.versions() == [changed]


def test_versions_come_oldest_published_first(catalog: Catalog, tmp_path: Path) -> None:
    late = version_at(tmp_path, "a", NOON + timedelta(microseconds=1))
    early = version_at(tmp_path, "b", NOON)
    with catalog.decide() as decision:
        decision.add(late)
        decision.add(early)
    assert catalog.versions() == [early, late]


def test_a_removed_version_is_gone_and_removing_nothing_is_fine(catalog: Catalog, tmp_path: Path) -> None:
    one, other = version_at(tmp_path, "a"), version_at(tmp_path, "b")
    with catalog.decide() as decision:
        decision.add(one)
        decision.add(other)
    with catalog.decide() as decision:
        decision.remove(one.id)
        decision.remove("no such id")
    assert catalog.versions() == [other]


def test_a_promise_is_set_changed_and_dropped(catalog: Catalog) -> None:
    with catalog.decide() as decision:
        decision.reserve(Reservation("a", Space(1, 2)))
        decision.reserve(Reservation("b", Space(3, 4)))
    assert catalog.reservations() == [Reservation("a", Space(1, 2)), Reservation("b", Space(3, 4))]
    with catalog.decide() as decision:
        decision.reserve(Reservation("a", Space(5, 6)))
        decision.release("b")
        decision.release("no such flight")
    assert catalog.reservations() == [Reservation("a", Space(5, 6))]


def test_a_decision_that_fails_leaves_nothing(catalog: Catalog, tmp_path: Path) -> None:
    kept = version_at(tmp_path, "a")
    with catalog.decide() as decision:
        decision.add(kept)
    added = version_at(tmp_path, "b")

    def fail() -> None:
        with catalog.decide() as decision:
            decision.remove(kept.id)
            decision.add(added)
            decision.reserve(Reservation("f", Space(1, 1)))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert catalog.versions() == [kept]
    assert catalog.reservations() == []


def test_readers_see_what_was_before_until_a_decision_ends(catalog: Catalog) -> None:
    with catalog.decide() as decision:
        decision.reserve(Reservation("f", Space(1, 1)))
    with catalog.decide() as decision:
        decision.reserve(Reservation("f", Space(2, 2)))
        assert catalog.reservations() == [Reservation("f", Space(1, 1))]
    assert catalog.reservations() == [Reservation("f", Space(2, 2))]


def test_one_thread_at_a_time_decides(catalog: Catalog) -> None:
    def count() -> None:
        for _ in range(25):
            with catalog.decide() as decision:
                held = catalog.reservations()
                size = held[0].space.bytes if held else 0
                decision.reserve(Reservation("count", Space(size + 1, 0)))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert catalog.reservations() == [Reservation("count", Space(100, 0))]
