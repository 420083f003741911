"""What evicting frees, beside what du counts, and the trash."""

import itertools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dsagent.core.errors import InsufficientStorage
from dsagent.core.ports import CachedVersion, Location, Reservation
from dsagent.core.space import Disk, Space
from dsagent.service.cache import cache
from dsagent.service.evict import evict, evict_need
from dsagent.service.node import Node, held
from dsagent.service.origins import CacheRequest
from dsagent.service.recovery import recover
from dsagent.service.removal import Freed, empty_trash, freed_by, left_by_attempts, set_aside
from tests.fakes.node import FixedDisk
from tests.support import trees
from tests.support.command import REPOSITORY
from tests.support.nodes import NoMeter, node_at, published


def taken(folders: list[Path]) -> Space:
    """What lies in `folders`, each inode once, by du's count."""
    if not folders:
        return Space()
    totals = []
    for what in ("--block-size=1", "--inodes"):
        done = subprocess.run(["du", "-sc", what, *map(str, folders)], check=True, capture_output=True, text=True)
        totals.append(int(done.stdout.splitlines()[-1].split()[0]))
    return Space(*totals)


@pytest.fixture
def shared(scratch: Path) -> tuple[Node, list[CachedVersion]]:
    """Three versions of a dataset, each with most files of the one before; deep directories in them."""
    tree = scratch / "imgs"
    trees.make_files(tree, 30, directories=3)
    trees.make_deep(tree / "deep", [b"x" * 200] * 30)
    node = node_at(scratch / "root")
    for number in range(3):
        for index in range(5):
            (tree / "d000" / f"new-{number}-{index}").write_bytes(os.urandom(5000))
        cache(node, CacheRequest(Location(str(tree))))
    return node, node.catalog.versions()


def test_versions_share_inodes(shared: tuple[Node, list[CachedVersion]]) -> None:
    node, versions = shared
    inodes = [set(trees.inodes(node.data(version)).values()) for version in versions]
    assert len(inodes[0] & inodes[1] & inodes[2]) >= 30


def test_a_file_counts_once_all_its_links_go(shared: tuple[Node, list[CachedVersion]]) -> None:
    node, versions = shared
    everything = taken([node.data(version) for version in versions])
    for length in range(4):
        for some in itertools.combinations(versions, length):
            rest = taken([node.data(version) for version in versions if version not in some])
            assert freed_by(node, some) == everything - rest


def test_a_growing_list_is_counted_as_a_whole_one(shared: tuple[Node, list[CachedVersion]]) -> None:
    node, versions = shared
    freed = Freed(node)
    for length in range(4):
        assert freed(versions[:length]) == freed_by(node, versions[:length])
    assert freed(versions[1:]) == freed_by(node, versions[1:])


def test_a_file_linked_from_elsewhere_is_not_freed(shared: tuple[Node, list[CachedVersion]], scratch: Path) -> None:
    node, versions = shared
    before = freed_by(node, versions)
    os.link(node.data(versions[0]) / "d000" / "f000003", scratch / "link")
    assert (before - freed_by(node, versions)).inodes == 1


EMPTY = """
import sys
import threading
from dataclasses import replace
from pathlib import Path
from dsagent.service.removal import empty_trash
from tests.support.nodes import node_at
empty_trash(node_at(Path(sys.argv[1])), wait=sys.argv[2] == "wait")
"""


def emptier(node: Node, how: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-c", EMPTY, str(node.root), how], env=environment)


def full_trash(node: Node) -> None:
    node.prepare()
    for name in ("a", "b"):
        trees.make_files(node.trash / name, 500, directories=20)
        (node.trash / name / "d000").chmod(0o555)
    (node.trash / "catalog.sqlite.old").write_text("a file")


def test_several_processes_empty_the_trash(scratch: Path) -> None:
    node = node_at(scratch / "root")
    full_trash(node)
    emptiers = [emptier(node, how) for how in ("wait", "leave", "wait")]
    assert [one.wait() for one in emptiers] == [0, 0, 0]
    assert list(node.trash.iterdir()) == []


def test_who_does_not_wait_leaves_it_to_who_is_at_it(scratch: Path) -> None:
    node = node_at(scratch / "root")
    full_trash(node)
    with held(node.locks / "trash", waiting=lambda: pytest.fail("nobody holds it")):
        assert emptier(node, "leave").wait() == 0
        assert len(list(node.trash.iterdir())) == 3
    empty_trash(node)
    assert list(node.trash.iterdir()) == []


def test_a_root_without_trash_has_nothing_to_empty(scratch: Path) -> None:
    empty_trash(node_at(scratch / "root"))
    assert not (scratch / "root").exists()


def test_the_folders_of_a_name_go_with_its_last_version(scratch: Path) -> None:
    node = node_at(scratch / "root")
    one, other = published(node, "imgs"), published(node, "imgs")
    evict(node, f"imgs@{one.version}", force=False, dry_run=False)
    assert [path.name for path in node.versions.glob("*/*/*")] == [other.id]
    evict(node, "imgs", force=False, dry_run=False)
    assert list(node.versions.iterdir()) == []


def test_what_killed_flights_left_goes_before_any_version(scratch: Path) -> None:
    class Occupied(FixedDisk):
        """A disk of 1 MiB of which a killed flight's folder takes half."""

        def measure(self) -> Disk:
            left = (scratch / "root/staging/killed").exists() or list((scratch / "root/trash").glob("*"))
            return self.disk._replace(free=Space(1 << 19 if left else 1 << 20, 0))

    node = node_at(scratch / "root", disk=Occupied(Space(1 << 20, 0), Space(1 << 20, 0)))
    version = published(node, "imgs")
    (node.staging / "killed/data").mkdir(parents=True)
    with node.catalog.decide() as decision:
        decision.reserve(Reservation("killed", Space(1 << 19, 0)))
    assert evict_need(node, 1 << 20, dry_run=False).evicted == []
    assert node.catalog.versions() == [version]
    assert node.catalog.reservations() == []
    assert list(node.staging.iterdir()) == []
    with pytest.raises(InsufficientStorage):
        evict_need(node, (1 << 20) + 4097, dry_run=False)
    assert [one.dataset for one in evict_need(node, (1 << 20) + 4096, dry_run=False).evicted] == ["imgs"]


def test_many_at_once_remove_what_killed_flights_left(scratch: Path) -> None:
    """As the requests to an agent do, each of which brings the root into order first."""
    node = node_at(scratch / "root")
    node.prepare()
    errors: list[BaseException] = []

    def put_in_order() -> None:
        try:
            recover(node)
        except BaseException as error:  # noqa: BLE001 - a thread's
            errors.append(error)

    for number in range(5):
        left, under_way = node.staging / f"_local.imgs.{number}", node.staging / f"_local.text.{number}"
        for folder in (left, under_way):
            trees.make_files(folder / "manifest", 2000, directories=20, largest=1)
        with held(node.lock(under_way.name), waiting=lambda: pytest.fail("nobody holds it")):
            threads = [threading.Thread(target=put_in_order) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            assert not left.exists()
            assert trees.count_files(under_way) == 2000
    recover(node)
    empty_trash(node)
    assert not list(node.staging.iterdir())
    assert not list(node.trash.iterdir())


def test_nobody_resumes_what_is_being_set_aside(scratch: Path) -> None:
    """A flight that begins meanwhile has a folder of its own: nothing that it makes is deleted."""
    node = node_at(scratch / "root")
    node.prepare()
    trees.make_files(node.staging / "f" / "manifest", 20, directories=1)
    inode = (node.staging / "f").stat().st_ino
    assert set_aside(node, "f")
    assert [folder.stat().st_ino for folder in node.trash.iterdir()] == [inode]
    assert not set_aside(node, "f")
    with held(node.lock("f"), waiting=lambda: pytest.fail("nobody holds it")):
        (node.staging / "f").mkdir()
        assert not set_aside(node, "f")
        assert (node.staging / "f").exists()


def test_what_has_just_been_removed_frees_nothing(scratch: Path) -> None:
    """As for `evict --need --dry-run` beside an eviction: it looks without a decision."""
    node = node_at(scratch / "root")
    version = published(node, "imgs")._replace(shares=True)
    assert freed_by(node, [version]).inodes > 0
    evict(node, "imgs", force=False, dry_run=False)
    assert freed_by(node, [version]) == Space()
    assert left_by_attempts(node, "_local.imgs.0") == Space()


class Bequeathing(NoMeter):
    """When a flight begins to fetch, makes the version that is here the heir of an evicted one."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def start(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None:
        del subject, total_bytes, total_files
        if verb == "cache":
            (version,) = self.node.catalog.versions()
            with self.node.catalog.decide() as decision:
                decision.add(version._replace(allocated=version.allocated + Space(1 << 20, 7)))


@pytest.mark.parametrize("changed", [True, False])
def test_what_an_heir_was_left_is_not_forgotten_by_an_update_under_way(scratch: Path, changed: bool) -> None:
    trees.make_files(scratch / "imgs", 30)
    node = node_at(scratch / "root")
    request = CacheRequest(Location(str(scratch / "imgs")), check="content")
    first = cache(node, request)
    (before,) = node.catalog.versions()
    if changed:
        (scratch / "imgs" / "new").write_text("new")
    again = cache(replace(node, meter=Bequeathing(node)), request)
    assert again.outcome == ("updated" if changed else "hit")
    now = next(version for version in node.catalog.versions() if version.version == first.version)
    assert now.allocated == before.allocated + Space(1 << 20, 7)
