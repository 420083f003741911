"""A directory that must lie beneath a folder: no `..`, no symlink, and none that is put there meanwhile, leads out."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dsagent.adapters import beneath
from dsagent.adapters.directory import DirectorySource, DirectoryStore
from dsagent.core.entries import FILE
from dsagent.core.errors import BadStore, NotPermitted, SourceChanged, SourceError, UsageError
from dsagent.core.ports import Location

SECRET = b"not for them"


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    for name in ("outside", "outside/deep"):
        (tmp_path / name / "file").write_bytes(SECRET)
        (tmp_path / name / "dsagent-store.json").write_bytes(SECRET)
    folder = tmp_path / "allowed"
    (folder / "imgs" / "deep").mkdir(parents=True)
    (folder / "imgs" / "deep" / "file").write_bytes(b"for all")
    return folder


def below(allowed: Path, path: str | Path) -> Location:
    return Location(str(path), (("beneath", str(allowed)),))


def test_a_tree_beneath_the_folder_is_read_as_any_other(allowed: Path) -> None:
    os.symlink("imgs", allowed / "link")
    for name in ("imgs", "link", "imgs/../imgs"):
        source = DirectorySource(below(allowed, f"{allowed}/{name}"))
        stamps = list(source.scan())
        assert [stamp.path for stamp in stamps] == [b"deep", b"deep/file"], name
        assert list(source.chunks(stamps[1])) == [b"for all"]
        assert source.location == below(allowed, os.path.abspath(f"{allowed}/{name}")), "workers open the same"


@pytest.mark.parametrize(
    "target", ["../outside", "../outside/deep", "{}/outside", "imgs/../../outside", "/proc/self/root"]
)
def test_a_symlink_that_leads_out_is_refused(allowed: Path, target: str) -> None:
    os.symlink(target.format(allowed.parent), allowed / "link")
    for path in (allowed / "link", allowed / "link" / "deep"):
        with pytest.raises(NotPermitted, match="leads out"):
            DirectorySource(below(allowed, path))
        with pytest.raises(NotPermitted, match="leads out"):
            DirectoryStore(below(allowed, path)).find("dsagent-store.json")


def test_dots_and_other_folders_are_refused(allowed: Path) -> None:
    (allowed.parent / "allowed-not").mkdir()
    for path in (
        f"{allowed}/../outside",
        f"{allowed}/imgs/../../outside",
        f"{allowed}-not",
        f"{allowed.parent}/outside",
    ):
        with pytest.raises(NotPermitted):
            DirectorySource(below(allowed, path))
        with pytest.raises(NotPermitted):
            DirectoryStore(below(allowed, path)).find("file")


def test_a_directory_that_becomes_a_symlink_after_the_listing_is_not_followed(allowed: Path) -> None:
    imgs = allowed / "imgs"
    os.link(allowed.parent / "outside" / "file", allowed.parent / "outside" / "same")
    os.link(allowed.parent / "outside" / "file", imgs / "deep" / "same")  # even the stamp will be right
    source = DirectorySource(below(allowed, imgs))
    stamps = {stamp.path: stamp for stamp in source.scan()}
    (imgs / "deep").rename(imgs / "was")
    os.symlink("../../outside", imgs / "deep")
    for path in (b"deep/file", b"deep/same"):
        with pytest.raises(SourceChanged):
            list(source.chunks(stamps[path]))


def test_the_objects_of_a_store_cannot_be_symlinks_that_lead_out(allowed: Path) -> None:
    store = allowed / "store"
    (store / "manifests").mkdir(parents=True)
    os.symlink("../../outside", store / "bundles")
    os.symlink("../../../outside/file", store / "manifests" / "file")
    opened = DirectoryStore(below(allowed, store))
    for verb in (
        lambda: opened.find("bundles/file"),
        lambda: opened.read("manifests/file"),
        lambda: list(opened.entries("bundles/")),
        lambda: opened.create("bundles/new", b"new"),
        lambda: opened.delete("bundles/file"),
        lambda: opened.refresh("bundles/file"),
        lambda: opened.replace("bundles/file", b"new", SECRET),
    ):
        with pytest.raises((NotPermitted, BadStore)):
            verb()
    assert sorted(os.listdir(allowed.parent / "outside")) == ["deep", "dsagent-store.json", "file"]
    assert (allowed.parent / "outside" / "file").read_bytes() == SECRET


def test_a_store_beneath_the_folder_is_made_where_there_was_nothing(allowed: Path) -> None:
    store = DirectoryStore(below(allowed, allowed / "new" / "store"))
    assert store.find("key") is None
    assert store.create("bundles/key", b"data")
    assert not store.create("bundles/key", b"other")
    assert store.replace("bundles/key", b"more", b"data")
    assert [found.key for found in store.entries("bundles/")] == ["bundles/key"]
    assert store.read("bundles/key") == b"more"


def test_a_kernel_that_cannot_keep_paths_beneath_a_folder_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    beneath.require_openat2()
    monkeypatch.setattr(beneath, "_SYS_OPENAT2", 9999)
    with pytest.raises(UsageError, match="openat2"):
        beneath.require_openat2()


@pytest.fixture
def swapping(allowed: Path) -> Iterator[Callable[[], int]]:
    """A thread that swaps `imgs/deep` for a symlink out and back, as fast as it can; the call says how often so far."""
    imgs = allowed / "imgs"
    os.symlink("../../outside", imgs / "link")
    done = threading.Event()
    count = 0

    def swap() -> None:
        nonlocal count
        while not done.is_set():
            (imgs / "deep").rename(imgs / "was")
            (imgs / "link").rename(imgs / "deep")
            (imgs / "deep").rename(imgs / "link")
            (imgs / "was").rename(imgs / "deep")
            count += 1

    thread = threading.Thread(target=swap)
    thread.start()
    yield lambda: count
    done.set()
    thread.join()


def test_nothing_outside_is_ever_seen_while_symlinks_are_swapped_in(allowed: Path, swapping: Callable[[], int]) -> None:
    begun = swapping()
    rounds = read = 0
    while rounds < 500 or swapping() < begun + 500 or not read:
        rounds += 1
        with suppress(NotPermitted, SourceError, SourceChanged):
            source = DirectorySource(below(allowed, allowed / "imgs" / "deep"))
            stamps = [stamp for stamp in source.scan([]) if stamp.kind == FILE]
            assert [stamp.path for stamp in stamps] == [b"file"]
            assert b"".join(source.chunks(stamps[0])) == b"for all"
            read += 1
        with suppress(NotPermitted, SourceError, SourceChanged):
            tree = DirectorySource(below(allowed, allowed / "imgs"))
            for stamp in tree.scan([]):
                if stamp.kind == FILE:
                    assert b"".join(tree.chunks(stamp)) == b"for all"
