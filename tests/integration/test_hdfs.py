"""dsctl from and to a real HDFS, through WebHDFS."""

from pathlib import Path

import pytest

from tests import servers
from tests.support import remote, trees
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
    remote.assert_a_store_is_packed_cached_verified_updated_and_pruned(dsctl, tree, place.location.url)


def test_unpacked_files_are_cached_and_updated_by_what_changed(
    dsctl: Dsctl, tree: Path, place: FilesystemPlace, tmp_path: Path
) -> None:
    remote.assert_unpacked_files_are_cached_and_updated_by_what_changed(dsctl, tree, place, tmp_path / "store")


def test_a_folder_that_is_not_there_is_a_missing_source(dsctl: Dsctl, place: FilesystemPlace) -> None:
    dsctl.fails(3, "cache", f"{place.location.url}/nothing")
    dsctl.assert_nothing_published()


def test_a_protocol_nobody_knows_is_a_usage_error(dsctl: Dsctl) -> None:
    assert "nowhere" in dsctl.fails(2, "cache", "nowhere://host/data")["detail"]


def test_a_protocol_without_its_package_names_the_command(dsctl: Dsctl) -> None:
    detail = dsctl.fails(2, "cache", "gcs://bucket/data")["detail"]
    assert "pip install gcsfs" in detail
