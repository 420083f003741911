"""What holds on every storage that is spoken to over a network, told once."""

from pathlib import Path

from tests.support import trees
from tests.support.command import Dsctl
from tests.unit.contract.places import BucketPlace, FilesystemPlace

RemotePlace = BucketPlace | FilesystemPlace


def upload(place: RemotePlace, tree: Path) -> None:
    """Puts a tree there as it is, file by file."""
    for path, seen in trees.look(tree).items():
        if seen.kind == "f":
            place.write(path, (tree / path.decode()).read_bytes())
        else:
            place.make_directory(path)


def assert_a_store_is_packed_cached_verified_updated_and_pruned(dsctl: Dsctl, tree: Path, store: str) -> None:
    """The whole life of a store at a URL, named `images`."""
    packed = dsctl.ok("pack", tree, store, "--name", "images")
    assert packed["files"] == sum(seen.kind == "f" for seen in trees.look(tree).values())
    cached = dsctl.ok("cache", store)
    assert (cached["dataset"], cached["outcome"]) == ("images", "fetched")
    assert cached["version"] == packed["version"]
    trees.assert_published(Path(cached["path"]), trees.look(tree))
    assert dsctl.ok("verify", "images")["bad"] == []
    assert dsctl.ok("cache", store)["outcome"] == "hit"

    (tree / "d001" / "new").write_bytes(b"new")
    second = dsctl.ok("pack", tree, store, "--name", "images")
    assert {row["version"] for row in dsctl.ok("ls", store)} == {packed["version"], second["version"]}
    updated = dsctl.ok("cache", store)
    assert (updated["outcome"], updated["fetched_bytes"]) == ("updated", 3)
    trees.assert_published(Path(updated["path"]), trees.look(tree))

    dsctl.ok("store", "forget", store, "--keep-last", "1")
    dsctl.ok("store", "prune", store)
    assert dsctl.ok("store", "check", store)["bad"] == []
    assert [row["version"] for row in dsctl.ok("ls", store)] == [second["version"]]


def assert_unpacked_files_are_cached_and_updated_by_what_changed(
    dsctl: Dsctl, tree: Path, place: RemotePlace, store: Path
) -> None:
    """`tree` as files of their own; `store` is where it is packed to, here, to compare the versions."""
    upload(place, tree)
    source = place.location.url
    cached = dsctl.ok("cache", source, "--name", "images")
    assert cached["outcome"] == "fetched"
    expected = trees.without_times(trees.look(tree))
    trees.assert_same(trees.without_times(trees.look(Path(cached["path"]))), expected)
    assert dsctl.ok("verify", "images")["bad"] == []
    assert dsctl.ok("cache", source, "--name", "images")["outcome"] == "hit"
    # The same content has the same version, wherever it lies.
    assert dsctl.ok("pack", tree, store)["version"] == cached["version"]

    place.write(b"d001/changed", b"changed")
    updated = dsctl.ok("cache", source, "--name", "images")
    assert (updated["outcome"], updated["fetched_bytes"]) == ("updated", 7)
    assert (Path(updated["path"]) / "d001" / "changed").read_bytes() == b"changed"
