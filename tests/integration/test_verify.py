"""verify and its repair: every way in which a cached tree can be bad is found, and put right with new inodes."""

import dataclasses
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dsagent.core.errors import DigestMismatch, InUse, NotCached, SourceError
from dsagent.core.ports import Location
from dsagent.core.space import Limits, Space
from dsagent.service import leases
from dsagent.service.cache import cache
from dsagent.service.evict import evict
from dsagent.service.node import Node
from dsagent.service.origins import CacheRequest
from dsagent.service.pack import PackRequest, pack
from dsagent.service.results import VerifyResult
from dsagent.service.verify import verify
from dsagent.wiring import Wiring
from tests.support import trees
from tests.support.nodes import NoMeter, node_at, published

Damage = Callable[[Path], object]


@dataclasses.dataclass
class Cached:
    """A dataset that was cached from `source`, a directory or a store made from it."""

    node: Node
    tree: Path
    data: Path
    expected: trees.Tree

    def verify(self, repair: bool = False) -> VerifyResult:
        return verify(self.node, "imgs", repair)

    def bad(self) -> dict[bytes, str]:
        return {one.path: one.problem for one in self.verify().bad}


@pytest.fixture(params=["directory", "store"])
def cached(request: pytest.FixtureRequest, scratch: Path) -> Cached:
    tree = scratch / "imgs"
    trees.make_files(tree, 60, directories=3)
    (tree / "d000" / "run").write_text("#!/bin/sh")
    (tree / "d000" / "run").chmod(0o755)
    (tree / "d001" / "link").symlink_to("../d000/run")
    (tree / "d001" / "inner" / "deep").mkdir(parents=True)
    (tree / "d001" / "inner" / "deep" / "file").write_bytes(random.Random(0).randbytes(100_000))
    (tree / "empty").mkdir()
    source = tree
    if request.param == "store":
        source = scratch / "store"
        pack(Wiring(), NoMeter(), 0, PackRequest(Location(str(tree)), Location(str(source))))
    node = node_at(scratch / "root")
    data = Path(cache(node, CacheRequest(Location(str(source)))).path)
    return Cached(node, tree, data, trees.look(tree))


def opened(folder: Path) -> Path:
    folder.chmod(0o755)
    return folder


def rewrite(path: Path, data: bytes) -> None:
    opened(path.parent)
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(mode)


def replace(path: Path, make: Callable[[Path], object]) -> None:
    opened(path.parent)
    trees.remove(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    make(path)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(path, bytes(data))


DAMAGES: dict[str, tuple[Damage, dict[bytes, str]]] = {
    "flipped bit": (
        lambda data: flip(data / "d001/inner/deep/file"),
        {b"d001/inner/deep/file": "the content differs"},
    ),
    "cut": (
        lambda data: rewrite(data / "d001/inner/deep/file", b"x"),
        {b"d001/inner/deep/file": "1 bytes instead of 100000"},
    ),
    "emptied": (lambda data: rewrite(data / "d000/run", b""), {b"d000/run": "0 bytes instead of 9"}),
    "gone": (lambda data: (opened(data / "d000") / "run").unlink(), {b"d000/run": "missing"}),
    "not executable": (
        lambda data: (data / "d000/run").chmod(0o444),
        {b"d000/run": "the executable bit differs"},
    ),
    "a symlink elsewhere": (
        lambda data: replace(data / "d001/link", lambda path: path.symlink_to("../empty")),
        {b"d001/link": "not the symlink it should be"},
    ),
    "a file for a symlink": (
        lambda data: replace(data / "d001/link", lambda path: path.write_text("x")),
        {b"d001/link": "not the symlink it should be"},
    ),
    "a symlink for a file": (
        lambda data: replace(data / "d000/run", lambda path: path.symlink_to("f000000")),
        {b"d000/run": "not a regular file"},
    ),
    "a directory for a file": (
        lambda data: replace(data / "d000/run", lambda path: (path / "full").mkdir(parents=True)),
        {b"d000/run": "not a regular file"},
    ),
    "an empty directory gone": (lambda data: (opened(data) / "empty").rmdir(), {b"empty": "missing"}),
    "directories gone": (
        lambda data: trees.remove(opened(data / "d001") / "inner"),
        dict.fromkeys([b"d001/inner", b"d001/inner/deep", b"d001/inner/deep/file"], "missing"),
    ),
    "a file for a directory": (
        lambda data: replace(data / "d001/inner", lambda path: path.write_text("x")),
        {
            b"d001/inner": "not a directory",
            b"d001/inner/deep": "Not a directory",
            b"d001/inner/deep/file": "Not a directory",
        },
    ),
}


def test_a_good_tree_has_nothing_bad(cached: Cached) -> None:
    found = cached.verify()
    assert found.bad == []
    assert (found.dataset, found.files, found.repaired) == ("imgs", 62, 0)
    trees.assert_published(cached.data, cached.expected)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_repaired(cached: Cached, name: str) -> None:
    damage, problems = DAMAGES[name]
    damage(cached.data)
    assert cached.bad() == problems
    found = cached.verify(repair=True)
    assert {one.path: one.problem for one in found.bad} == problems
    assert found.repaired == len(problems)
    _sealed(cached.data)
    trees.assert_published(cached.data, cached.expected)
    assert cached.bad() == {}


def _sealed(data: Path) -> None:
    """What the test itself opened is closed again; what repair touched must be so already."""
    for folder in (data, *data.rglob("*")):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o555)


def test_repair_says_what_it_evicted_to_make_room(cached: Cached) -> None:
    published(cached.node, "other", Space(1 << 20, 1), used=0.0)
    used = sum(version.allocated.bytes for version in cached.node.catalog.versions())
    (cached.data / "d001" / "inner" / "deep" / "file").unlink()
    full = dataclasses.replace(cached.node, limits=Limits(capacity=used, keep_free=0))
    found = verify(full, "imgs", repair=True)
    assert found.repaired == 1
    assert [(one.dataset, one.bytes) for one in found.evicted] == [("other", 1 << 20)]


def test_repair_closes_the_directories_it_opened(cached: Cached) -> None:
    flip(cached.data / "d001/inner/deep/file")
    _sealed(cached.data)
    cached.verify(repair=True)
    trees.assert_published(cached.data, cached.expected)


def test_repair_fetches_only_what_is_bad_and_makes_new_inodes(cached: Cached) -> None:
    before = trees.inodes(cached.data)
    held = (cached.data / "d001/inner/deep/file").open("rb")
    flip(cached.data / "d001/inner/deep/file")
    cached.verify(repair=True)
    after = trees.inodes(cached.data)
    assert {path for path in before if before[path] != after[path]} == {b"d001/inner/deep/file"}
    with held:
        assert held.read() != (cached.data / "d001/inner/deep/file").read_bytes()


def test_a_version_that_shares_the_bad_inode_keeps_its_own_name_for_it(cached: Cached) -> None:
    """The inode is not written: what another version shows is that version's to repair."""
    (cached.tree / "new").write_text("new")
    updated = cache(cached.node, CacheRequest(Location(str(cached.tree)), name="imgs", replace_source=True))
    assert updated.reused_files > 0
    other, path = Path(updated.path), Path("d001/inner/deep/file")
    assert (other / path).stat().st_ino == (cached.data / path).stat().st_ino
    flip(other / path)
    assert verify(cached.node, f"imgs@{updated.version}", repair=True).repaired == 1
    first = next(v for v in cached.node.catalog.versions() if v.version != updated.version)
    assert len(verify(cached.node, f"imgs@{first.version}", repair=False).bad) == 1
    assert verify(cached.node, f"imgs@{first.version}", repair=True).repaired == 1
    assert (other / path).read_bytes() == (cached.data / path).read_bytes()


def test_nothing_is_evicted_while_it_is_verified(cached: Cached) -> None:
    class Evicting(NoMeter):
        refused = 0

        def advance(self, _size: int, _files: int) -> None:
            with pytest.raises(InUse):
                evict(cached.node, "imgs", force=True, dry_run=False)
            self.refused += 1

    meter = Evicting()
    verify(dataclasses.replace(cached.node, meter=meter), "imgs", repair=False)
    assert meter.refused > 0
    assert leases.list_leases(cached.node) == []


def test_a_damaged_manifest_is_said(cached: Cached) -> None:
    shard = next((cached.data.parent / "manifest" / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    with pytest.raises(DigestMismatch, match="manifest is damaged"):
        cached.verify()


def test_what_is_not_here_is_said(cached: Cached) -> None:
    with pytest.raises(NotCached):
        verify(cached.node, "coco", repair=False)


def test_a_source_that_changed_repairs_what_it_still_has(scratch: Path) -> None:
    tree = scratch / "imgs"
    trees.make_files(tree, 10, directories=1)
    node = node_at(scratch / "root")
    data = Path(cache(node, CacheRequest(Location(str(tree)))).path)
    flip(data / "d000/f000003")
    flip(data / "d000/f000004")
    rewrite(data / "d000/f000005", b"")
    (tree / "d000/f000004").write_bytes(os.urandom((tree / "d000/f000004").stat().st_size))
    (tree / "d000/f000005").unlink()
    os.utime(tree / "d000/f000003")  # touched only: its content is still the recorded one
    found = verify(node, "imgs", repair=True)
    assert (len(found.bad), found.repaired) == (3, 1)
    assert [one.path for one in verify(node, "imgs", repair=False).bad] == [b"d000/f000004", b"d000/f000005"]
    assert (data / "d000/f000003").read_bytes() == (tree / "d000/f000003").read_bytes()


def test_a_source_that_is_gone_is_said_and_nothing_is_touched(scratch: Path) -> None:
    tree = scratch / "imgs"
    trees.make_files(tree, 10, directories=1)
    node = node_at(scratch / "root")
    data = Path(cache(node, CacheRequest(Location(str(tree)))).path)
    flip(data / "d000/f000003")
    before = trees.look(data)
    trees.remove(tree)
    with pytest.raises(SourceError):
        verify(node_at(scratch / "root"), "imgs", repair=True)
    assert trees.look(data) == before
    assert node.catalog.reservations() == []
