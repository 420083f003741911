"""dsctl from and to a real HDFS, through WebHDFS."""

from pathlib import Path

import pytest

from tests import servers
from tests.support import trees
from tests.support.command import Dsctl
from tests.unit.contract.places import FilesystemPlace

pytestmark = pytest.mark.needs("java")

LARGE = 9 << 20


@pytest.fixture
def place() -> FilesystemPlace:
    return FilesystemPlace(f"webhdfs://{servers.hdfs()}", notices_rewrites=True)


@pytest.fixture
def dsctl(tmp_path: Path) -> Dsctl:
    return Dsctl(tmp_path / "root")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    trees.make_files(root, 8, directories=2)
    (root / "empty folder").mkdir()
    (root / "d000" / "empty file").touch()
    (root / "d000" / "a b%20c#d?e+f&g=h\n").write_bytes(b"odd name")
    (root / "large").write_bytes(bytes(range(256)) * (LARGE // 256))
    return root


def test_a_store_on_hdfs_is_packed_cached_verified_updated_and_pruned(
    dsctl: Dsctl, tree: Path, place: FilesystemPlace
) -> None:
    store = place.location.url
    packed = dsctl.ok("pack", tree, store, "--name", "images")
    cached = dsctl.ok("cache", store)
    assert (cached["dataset"], cached["version"]) == ("images", packed["version"])
    trees.assert_published(Path(cached["path"]), trees.look(tree))
    assert dsctl.ok("verify", "images")["bad"] == []

    (tree / "d001" / "new").write_bytes(b"new")
    second = dsctl.ok("pack", tree, store, "--name", "images")
    updated = dsctl.ok("cache", store)
    assert (updated["outcome"], updated["fetched_bytes"]) == ("updated", 3)
    trees.assert_published(Path(updated["path"]), trees.look(tree))

    dsctl.ok("store", "forget", store, "--keep-last", "1")
    dsctl.ok("store", "prune", store)
    assert dsctl.ok("store", "check", store)["bad"] == []
    assert [row["version"] for row in dsctl.ok("ls", store)] == [second["version"]]


def test_unpacked_files_are_cached_and_updated_by_what_changed(
    dsctl: Dsctl, tree: Path, place: FilesystemPlace, tmp_path: Path
) -> None:
    for path, seen in trees.look(tree).items():
        if seen.kind == "f":
            place.write(path, (tree / path.decode()).read_bytes())
        else:
            place.make_directory(path)
    source = place.location.url
    cached = dsctl.ok("cache", source, "--name", "images")
    expected = trees.without_times(trees.look(tree))
    trees.assert_same(trees.without_times(trees.look(Path(cached["path"]))), expected)
    assert dsctl.ok("cache", source, "--name", "images")["outcome"] == "hit"
    # The same content has the same version, wherever it lies.
    assert dsctl.ok("pack", tree, tmp_path / "store")["version"] == cached["version"]

    place.write(b"d001/changed", b"changed")
    updated = dsctl.ok("cache", source, "--name", "images")
    assert (updated["outcome"], updated["fetched_bytes"]) == ("updated", 7)


def test_a_folder_that_is_not_there_is_a_missing_source(dsctl: Dsctl, place: FilesystemPlace) -> None:
    dsctl.fails(3, "cache", f"{place.location.url}/nothing")
    dsctl.assert_nothing_published()


def test_a_protocol_nobody_knows_is_a_usage_error(dsctl: Dsctl) -> None:
    assert "nowhere" in dsctl.fails(2, "cache", "nowhere://host/data")["detail"]


def test_a_protocol_without_its_package_names_the_command(dsctl: Dsctl) -> None:
    detail = dsctl.fails(2, "cache", "gcs://bucket/data")["detail"]
    assert "pip install gcsfs" in detail
