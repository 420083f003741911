"""Looking without touching: ls, path, df, diff and doctor."""

import dataclasses
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from dsagent.core.errors import BadStore, NotCached, SourceError, UsageError
from dsagent.core.ports import Location, Reservation
from dsagent.core.space import Disk, Limits, Space
from dsagent.service import leases
from dsagent.service.cache import cache
from dsagent.service.diff import Side, diff
from dsagent.service.doctor import doctor
from dsagent.service.listing import df, ls, path
from dsagent.service.node import Node, held
from dsagent.service.origins import CacheRequest
from dsagent.service.pack import PackRequest, pack
from dsagent.service.results import DiffResult, Finding
from dsagent.wiring import Wiring
from tests.fakes.node import FixedDisk, ManualClock
from tests.support import trees
from tests.support.nodes import NoMeter, node_at, published

GB = 10**9


@pytest.fixture
def node(scratch: Path) -> Node:
    return node_at(scratch / "root", disk=FixedDisk(Space(100 * GB, 10_000), Space(60 * GB, 8000)))


# ls, path, df


def test_a_root_that_is_not_there_is_empty_and_stays_away(node: Node) -> None:
    assert ls(node) == []
    assert df(node).datasets == 0
    with pytest.raises(NotCached, match="the cache is empty"):
        path(node, "imgs")
    assert not node.root.exists()


def test_the_listing_is_by_name_and_newest_first(scratch: Path) -> None:
    clock = ManualClock()
    node = node_at(scratch / "root", clock)
    old = published(node, "imgs")
    clock.advance(timedelta(seconds=1))
    new, other = published(node, "imgs"), published(node, "coco")
    lease = leases.add(node, f"imgs@{old.version}", "me", 60)
    found = ls(node)
    assert [info.dataset for info in found] == ["coco", "imgs", "imgs"]
    assert [info.version for info in found[1:]] == [new.version, old.version]
    assert [info.leases for info in found] == [[], [], [lease]]
    assert found[0].path == str(node.data(other))


def test_a_path_is_of_the_newest_or_the_version_asked_for_and_counts_as_a_use(node: Node) -> None:
    old = published(node, "imgs", used=1)
    new = published(node, "imgs", used=2)
    assert path(node, "imgs") == str(node.data(new))
    assert path(node, f"imgs@{old.version}") == str(node.data(old))
    assert all(version.last_used.timestamp() > 2 for version in node.catalog.versions())
    with pytest.raises(NotCached, match="here are: imgs"):
        path(node, "coco")
    with pytest.raises(UsageError):
        path(node, "No Name")


def test_df_adds_up(node: Node) -> None:
    published(node, "imgs", Space(3 * GB, 30))
    with node.catalog.decide() as decision:
        decision.reserve(Reservation("f", Space(2 * GB, 20)))
    found = df(node)  # nothing is kept free here but 5 % of the inodes
    assert (found.used, found.reserved, found.free) == (3 * GB, 2 * GB, 58 * GB)
    assert found.capacity == 63 * GB
    assert (found.inodes_used, found.inodes_reserved, found.inodes_free) == (30, 20, 8000 - 20 - 500)
    limited = dataclasses.replace(node, limits=Limits(capacity=4 * GB, keep_free=0))
    assert (df(limited).free, df(limited).capacity) == (0, 5 * GB)


# diff


@pytest.fixture
def sides(scratch: Path) -> tuple[Node, Path, Path]:
    """A node with imgs cached, its source tree, and a store made from it."""
    tree, place = scratch / "imgs", scratch / "store"
    trees.make_files(tree, 20, directories=2)
    (tree / "d000" / "link").symlink_to("f000000")
    (tree / "d001" / "run").write_text("#!")
    pack(Wiring(), NoMeter(), 0, PackRequest(Location(str(tree)), Location(str(place))))
    node = node_at(scratch / "root")
    cache(node, CacheRequest(Location(str(tree))))
    return node, tree, place


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").touch()


CHANGES: dict[str, tuple[Callable[[Path], object], DiffResult]] = {
    "nothing": (lambda _: None, DiffResult("", "", [], [], [])),
    "added": (lambda tree: (tree / "new").write_text(""), DiffResult("", "", [b"new"], [], [])),
    "removed": (lambda tree: (tree / "d000/link").unlink(), DiffResult("", "", [], [b"d000/link"], [])),
    "content": (lambda tree: (tree / "d001/run").write_text("!#"), DiffResult("", "", [], [], [b"d001/run"])),
    "executable": (lambda tree: (tree / "d001/run").chmod(0o755), DiffResult("", "", [], [], [b"d001/run"])),
    "only touched": (lambda tree: os.utime(tree / "d001/run"), DiffResult("", "", [], [], [])),
    "an empty directory": (lambda tree: (tree / "empty").mkdir(), DiffResult("", "", [], [], [])),
    "a directory for a file": (
        lambda tree: make_directory(tree / "d001/run"),
        DiffResult("", "", [b"d001/run/x"], [b"d001/run"], []),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("before", ["cached", "store"])
def test_differences_are_found(sides: tuple[Node, Path, Path], name: str, before: str) -> None:
    node, tree, place = sides
    change, expected = CHANGES[name]
    change(tree)
    a, b = Side("imgs" if before == "cached" else str(place)), Side(str(tree))
    assert diff(node, a, b) == dataclasses.replace(expected, a=a.text, b=b.text)
    back = diff(node, b, a)
    assert (back.added, back.removed, back.changed) == (expected.removed, expected.added, expected.changed)


def test_two_sources_are_compared(sides: tuple[Node, Path, Path], scratch: Path) -> None:
    node, tree, _ = sides
    other = scratch / "other"
    shutil.copytree(tree, other, symlinks=True)
    (other / "d000" / "f000000").write_text("other")
    assert diff(node, Side(str(tree)), Side(str(other))).changed == [b"d000/f000000"]


def test_a_version_of_a_store_can_be_named(sides: tuple[Node, Path, Path]) -> None:
    node, tree, place = sides
    first = node.find("imgs").version
    (tree / "new").write_text("")
    pack(Wiring(), NoMeter(), 0, PackRequest(Location(str(tree)), Location(str(place))))
    assert diff(node, Side(f"{place}@{first}"), Side(str(place))).added == [b"new"]
    with pytest.raises(BadStore):
        diff(node, Side(f"{place}@xxh3:{'0' * 32}"), Side(str(place)))


def test_what_is_nothing_is_said(sides: tuple[Node, Path, Path], scratch: Path) -> None:
    node, _, _ = sides
    with pytest.raises(SourceError):
        diff(node, Side("imgs"), Side(str(scratch / "none")))
    with pytest.raises(NotCached):
        diff(node, Side("imgs"), Side("coco"))


# doctor


def status(findings: list[Finding]) -> dict[str, str]:
    return {finding.name: finding.status for finding in findings if finding.status != "ok"}


@contextmanager
def few_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_root_in_order_has_nothing_to_say(node: Node) -> None:
    assert status(doctor(node, rebuild=False)) == {}
    assert not node.root.exists()
    published(node, "imgs")
    assert status(doctor(node, rebuild=False)) == {}
    assert {entry.name for entry in node.root.iterdir()} == {"catalog.sqlite", "versions", "staging", "trash", "locks"}


def test_every_finding_that_is_not_ok_has_advice(node: Node) -> None:
    node.prepare()
    (node.staging / "killed").mkdir()
    (node.trash / "old").mkdir()
    with node.catalog.decide() as decision:
        decision.reserve(Reservation("killed", Space(1, 1)))
    full = dataclasses.replace(node, disk=FixedDisk(Space(100 * GB, 1000), Space(0, 10), kind="fuseblk"))
    with few_open_files():
        found = doctor(full, rebuild=False)
    warned = {"filesystem", "space", "inodes", "open files", "reservations", "leftovers"}
    assert status(found) == dict.fromkeys(warned, "warn")
    assert all(finding.advice for finding in found if finding.status != "ok")


def test_a_flight_in_progress_is_no_leftover(node: Node) -> None:
    node.prepare()
    (node.staging / "flying").mkdir()
    with node.catalog.decide() as decision:
        decision.reserve(Reservation("flying", Space(1, 1)))
    with held(node.lock("flying"), waiting=lambda: pytest.fail("nobody holds it")):
        assert status(doctor(node, rebuild=False)) == {}
    assert status(doctor(node, rebuild=False)) == {"reservations": "warn", "leftovers": "warn"}


def test_a_disk_without_a_limit_of_inodes_is_fine(node: Node) -> None:
    endless = dataclasses.replace(node, disk=FixedDisk(Space(100 * GB, 0), Space(50 * GB, 0)))
    assert status(doctor(endless, rebuild=False)) == {}


def test_a_broken_catalog_fails_and_the_rest_is_still_looked_at(node: Node) -> None:
    published(node, "imgs")
    (node.root / "catalog.sqlite").write_bytes(b"broken" * 1000)
    found = doctor(node, rebuild=False)
    assert status(found) == {"catalog": "fail", "space": "warn"}
    assert {"filesystem", "inodes", "leftovers"} <= {finding.name for finding in found}


def test_what_the_disk_measures_is_what_the_filesystem_is(scratch: Path) -> None:
    disk: Disk = node_at(scratch / "root").disk.measure()
    assert disk.kind in doctor(node_at(scratch / "root"), rebuild=False)[0].detail
