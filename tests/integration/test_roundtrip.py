"""A tree survives the way into a store and into the cache exactly, and its version is that of its content alone."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsagent.core.ports import Location
from dsagent.engine.pack import PackOptions
from dsagent.service.cache import cache
from dsagent.service.node import Node
from dsagent.service.origins import CacheRequest
from dsagent.service.pack import PackRequest, pack
from dsagent.service.settings import Settings
from dsagent.wiring import Wiring, local_node
from tests.support import trees
from tests.support.command import Dsctl
from tests.support.people import USER, give, ordinary_user

LONG_AGO = 1_500_000_000_123_456_789


def _write(path: bytes, data: bytes = b"data", executable: bool = False) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o755 if executable else 0o644)
    os.write(fd, data)
    os.close(fd)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


def _names(root: bytes) -> None:
    for name in (b"with\nnewline", b"\xff\xfe not utf-8", b"x" * 255, b" ", b"a b", b"-rf", b"\\", b"*", b"\x01\x7f"):
        _write(root + b"/" + name, name)
        _write(root + b"/in/" + name + b"/leaf" if len(name) < 255 else root + b"/in/" + name, name)
    # Byte order differs from component order here.
    for name in (b"a/z", b"a-/z", b"a.txt", b"a0", b"\xc3\xa4"):
        _write(root + b"/order/" + name, name)


def _kinds(root: bytes) -> None:
    _write(root + b"/file")
    _write(root + b"/program", b"#!/bin/sh\n", executable=True)
    _write(root + b"/empty", b"")
    os.makedirs(root + b"/empty directory/inner")
    os.symlink(b"file", root + b"/link")
    os.symlink(b"../program", root + b"/empty directory/up")
    os.symlink(b"no\nsuch \xff", root + b"/dangling")
    os.symlink(b"empty directory", root + b"/link to a directory")
    os.symlink(b"a/" * 300 + b"z", root + b"/long link")
    os.link(root + b"/file", root + b"/hard link")
    for name, when in ((b"before 1970", -1_000_000_001), (b"far off", 1 << 62)):
        _write(root + b"/" + name)
        os.utime(root + b"/" + name, ns=(when, when))


def _sizes(root: bytes) -> None:
    for size in (0, 1, 511, 512, 513, 4095, 4096, 4097, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 33 << 20):
        _write(root + b"/%d" % size, os.urandom(min(size, 1 << 20)) * (size // min(size, 1 << 20) if size else 0))
        os.truncate(root + b"/%d" % size, size)
    with open(root + b"/sparse", "wb") as file:
        file.seek(40 << 20)
        file.write(b"end")


def _empty(root: bytes) -> None:
    os.makedirs(root)


TREES: list[Callable[[bytes], None]] = [_names, _kinds, _sizes, _empty]


@pytest.mark.parametrize("make", TREES)
@pytest.mark.parametrize("way", ["store", "directory"])
def test_comes_back_as_it_was(scratch: Path, make: Callable[[bytes], None], way: str) -> None:
    source, store, dsctl = scratch / "tree", scratch / "store", Dsctl(scratch / "root")
    make(os.fsencode(source))
    expected = trees.look(source)
    if way == "store":
        packed = dsctl.ok("pack", source, store)
    cached = dsctl.ok("cache", store if way == "store" else source, "--name", "tree")
    trees.assert_published(Path(cached["path"]), expected)
    assert cached["files"] == sum(seen.kind == "f" for seen in expected.values())
    assert dsctl.ok("verify", "tree")["bad"] == []
    if way == "store":
        assert packed["version"] == cached["version"]
        other = Dsctl(scratch / "other").ok("cache", source, "--name", "tree")
        assert other["version"] == cached["version"]


@pytest.mark.parametrize("names", [[b"n" * 250] * 20, [b"d"] * 3000], ids=["long names", "many levels"])
@pytest.mark.parametrize("way", ["store", "directory"])
def test_depth_beyond_path_max(scratch: Path, names: list[bytes], way: str) -> None:
    source, store, dsctl = scratch / "tree", scratch / "store", Dsctl(scratch / "root")
    trees.make_deep(source, names)
    expected = trees.look(source)
    assert max(map(len, expected)) > 4096
    if way == "store":
        dsctl.ok("pack", source, store)
    cached = dsctl.ok("cache", store if way == "store" else source, "--name", "tree")
    trees.assert_same(trees.look(Path(cached["path"])), expected)
    assert dsctl.ok("verify", "tree")["bad"] == []
    dsctl.ok("evict", "tree")
    assert list((dsctl.root / "trash").iterdir()) == []


def test_a_file_of_several_gigabytes(scratch: Path) -> None:
    """Larger than 31 bits, and than a bundle; with data at both ends and in the middle of nothing."""
    source, store, dsctl = scratch / "tree", scratch / "store", Dsctl(scratch / "root")
    source.mkdir()
    size = (2 << 30) + (100 << 20)
    with (source / "large").open("wb") as file:
        for at in (0, 1 << 30, size - 3):
            file.seek(at)
            file.write(b"end")
    _write(os.fsencode(source / "small"))
    packed = dsctl.ok("pack", source, store, "--bundle-bytes", "1GiB")
    assert packed["bundles"] == 2
    path = Path(dsctl.ok("cache", store)["path"])
    assert (path / "large").stat().st_size == size
    with (path / "large").open("rb") as file:
        for at in (0, 1 << 30, size - 3):
            file.seek(at)
            assert file.read(3) == b"end"
    assert dsctl.ok("verify", "tree")["bad"] == []


@pytest.mark.needs("tar")
@pytest.mark.parametrize("make", [_names, _kinds, _sizes])
def test_tar_reads_every_bundle(scratch: Path, make: Callable[[bytes], None]) -> None:
    source, store, out = scratch / "tree", scratch / "store", scratch / "out"
    make(os.fsencode(source))
    Dsctl(scratch / "root").ok("pack", source, store, "--files-per-bundle", "5")
    out.mkdir()
    bundles = list(store.glob("bundles/*.tar.zst"))
    assert len(bundles) > 1
    for bundle in bundles:
        subprocess.run(["tar", "--zstd", "-xpf", str(bundle), "-C", str(out)], check=True)
    files = {path: seen for path, seen in trees.look(source).items() if seen.kind == "f"}
    found = trees.look(out)
    # tar's header has whole seconds.
    trees.assert_same(
        {path: found[path]._replace(mtime_ns=0) for path in files if path in found}, trees.without_times(files)
    )


NAME = st.binary(min_size=1, max_size=20).filter(lambda name: name not in (b".", b"..") and not set(name) & {0, 47})
FILE = st.tuples(st.binary(max_size=3000), st.booleans())
NODE: st.SearchStrategy[object] = st.recursive(
    st.one_of(FILE, st.sampled_from([b"target", b"./here", b"\xff"])),
    lambda children: st.dictionaries(NAME, children, max_size=5),
    max_leaves=25,
)
TREE = st.dictionaries(NAME, NODE, max_size=6)


class _Silent:
    def start(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None: ...

    def advance(self, size: int, files: int) -> None: ...

    def stop(self) -> None: ...


def _grow(folder: bytes, tree: dict[bytes, object]) -> None:
    os.mkdir(folder)
    for name, node in tree.items():
        path = folder + b"/" + name
        match node:
            case dict():
                _grow(path, node)
            case bytes():
                os.symlink(node, path)
            case (bytes() as data, bool() as executable):
                _write(path, data, executable)
            case _:
                raise AssertionError(node)


def _node(root: Path, workers: int = 1) -> Node:
    return local_node(Settings(root=root, workers=workers), _Silent())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREE, bundle=st.integers(1, 6), level=st.integers(1, 4))
def test_any_tree_comes_back_with_the_same_version(
    scratch: Path, tree: dict[bytes, object], bundle: int, level: int
) -> None:
    """In this process, as starting a program for each example would take all the time."""
    for left in scratch.iterdir():
        trees.remove(left)
    source, store = scratch / "tree", scratch / "store"
    _grow(os.fsencode(source), tree)
    expected = trees.look(source)
    request = PackRequest(Location(str(source)), Location(str(store)), None, PackOptions(bundle, 1 << 30, level))
    packed = pack(Wiring(), _Silent(), 0, request)
    from_store = cache(_node(scratch / "one"), CacheRequest(Location(str(store))))
    from_source = cache(_node(scratch / "two"), CacheRequest(Location(str(source))))
    assert packed.version == from_store.version == from_source.version
    trees.assert_published(Path(from_store.path), expected)
    trees.assert_published(Path(from_source.path), expected)


def test_the_version_is_that_of_the_content(scratch: Path) -> None:
    """Not of bundles, level, workers, order of listing, times, or the way it came."""
    one, two = scratch / "one", scratch / "two"
    trees.make_files(one, 600, directories=7)
    _kinds(os.fsencode(one))
    # The same entries made in another order, at another time.
    two.mkdir()
    for path in sorted(one.rglob("*"), key=lambda path: path.name[::-1]):
        target = two / path.relative_to(one)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(os.readlink(path))
        elif path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            shutil.copy(path, target)
    packings = [
        (one, ("--files-per-bundle", "50", "--level", "1", "--workers", "1")),
        (one, ("--bundle-bytes", "100000", "--level", "9", "--workers", "2")),
        (two, ("--workers", "3")),
    ]
    versions = set()
    for number, (source, options) in enumerate(packings):
        dsctl = Dsctl(scratch / f"root-{number}")
        versions.add(dsctl.ok("pack", source, scratch / f"store-{number}", "--name", "same", *options)["version"])
        versions.add(dsctl.ok("cache", scratch / f"store-{number}")["version"])
    versions.add(Dsctl(scratch / "direct").ok("cache", two, "--name", "same")["version"])
    assert len(versions) == 1
    # And it does depend on what is content.
    (two / "file").chmod(0o755)
    assert Dsctl(scratch / "direct").ok("cache", two, "--name", "same")["version"] not in versions


def _special(root: Path) -> set[str]:
    root.mkdir()
    _write(os.fsencode(root / "kept"))
    os.mkfifo(root / "fifo")
    (root / "out").symlink_to("../elsewhere")
    (root / "absolute").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        server.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    return {"fifo", "out", "absolute", "socket"}


@pytest.mark.parametrize("verb", ["cache", "pack"])
def test_special_entries_are_named_or_counted(scratch: Path, verb: str) -> None:
    source, dsctl = scratch / "tree", Dsctl(scratch / "root")
    special = _special(source)
    more = [scratch / "store"] if verb == "pack" else []
    problem = dsctl.fails(3, verb, source, *more)
    assert set(problem["paths"]) == special
    done = dsctl.run(verb, source, *more, "--skip-special", "-o", "json")
    assert done.code == 0, done
    assert done.json["skipped_special"] == len(special)
    assert f"{len(special)} special entries" in done.err
    if verb == "cache":
        assert trees.look(Path(done.json["path"])).keys() == {b"kept"}


@pytest.mark.parametrize("verb", ["cache", "pack"])
@pytest.mark.needs("root", "mount", "setpriv")
def test_all_unreadable_files_are_named(scratch: Path, verb: str) -> None:
    source = scratch / "tree"
    trees.make_files(source, 300, directories=3)
    closed = [source / f"d00{index % 3}" / f"f{index:06}" for index in range(0, 300, 7)]
    for path in closed:
        path.chmod(0)
    (scratch / "root").mkdir()
    give(scratch)
    with ordinary_user() as prefix:
        dsctl = Dsctl(scratch / "root", prefix=prefix)
        problem = dsctl.fails(3, verb, source, *([scratch / "store"] if verb == "pack" else []))
        assert set(problem["paths"]) == {str(path.relative_to(source)) for path in closed}
        assert dsctl.visible() == {}


@pytest.mark.needs("root", "mount", "setpriv")
def test_as_an_ordinary_user(scratch: Path) -> None:
    """Files are its own and 0444; its directories are read-only and yet can be renamed and removed."""
    source, store = scratch / "tree", scratch / "store"
    trees.make_files(source, 300, directories=5)
    _kinds(os.fsencode(source))
    _names(os.fsencode(source))
    (scratch / "root").mkdir()
    give(scratch)
    with ordinary_user() as prefix:
        dsctl = Dsctl(scratch / "root", prefix=prefix)
        dsctl.ok("pack", source, store)
        cached = dsctl.ok("cache", store)
        trees.assert_published(Path(cached["path"]), trees.look(source))
        assert Path(cached["path"]).stat().st_uid == USER
        (source / "d000" / "f000000").write_bytes(b"changed")
        dsctl.ok("pack", source, store)
        updated = dsctl.ok("cache", store)
        assert updated["outcome"] == "updated"
        assert updated["reused_files"] > 0
        trees.assert_published(Path(updated["path"]), trees.look(source))
        dsctl.ok("evict", "tree")
        assert dsctl.visible() == {}
        assert list((dsctl.root / "trash").iterdir()) == []
