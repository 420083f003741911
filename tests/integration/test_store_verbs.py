"""A store's check, forget and prune, alone and beside packs that are killed."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from dsagent.adapters.directory import DirectoryStore
from dsagent.core.errors import BadStore, UsageError
from dsagent.core.layout import BUNDLES, MANIFESTS, POINTER_KEY, SHARDS, STAMPS, manifest_key
from dsagent.core.ports import Location
from dsagent.engine.pack import PackOptions
from dsagent.service import store
from dsagent.service.cache import cache
from dsagent.service.listing import ls_store
from dsagent.service.origins import CacheRequest
from dsagent.service.pack import PRUNE_GRACE_SECONDS, PackRequest, pack
from dsagent.service.results import PackResult, PruneResult, StoreCheckResult
from dsagent.wiring import Wiring
from tests.support import trees
from tests.support.command import Dsctl
from tests.support.nodes import NoMeter, node_at

SMALL = PackOptions(files_per_bundle=10, bundle_bytes=1 << 20)


class Place:
    """A source tree and a store, packed and looked after in this process."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "imgs"
        self.store = folder / "store"
        self.location = Location(str(self.store))
        trees.make_files(self.tree, 40, directories=4)

    def pack(self) -> PackResult:
        request = PackRequest(Location(str(self.tree)), self.location, options=SMALL)
        return pack(Wiring(), NoMeter(), 0, request)

    def change(self, name: str) -> None:
        (self.tree / name).write_text(f"new {name}")

    def check(self) -> StoreCheckResult:
        return store.check(Wiring(), NoMeter(), 0, self.location)

    def prune(self, dry_run: bool = False) -> PruneResult:
        return store.prune(Wiring(), self.location, dry_run)

    def forget(self, keep_last: int | None = None, older_than: float | None = None, dry_run: bool = False) -> list[str]:
        return list(store.forget(Wiring(), self.location, keep_last, older_than, dry_run).forgotten)

    def versions(self) -> list[str]:
        return [info.version for info in ls_store(Wiring(), self.location)]

    def objects(self, *prefixes: str) -> set[str]:
        found = (path for prefix in prefixes for path in (self.store / prefix).iterdir())
        return {str(path.relative_to(self.store)) for path in found}

    def age(self, seconds: float = PRUNE_GRACE_SECONDS + 60) -> None:
        """Makes all that is in the store as if it had been written so long ago."""
        for path in self.store.rglob("*"):
            if path.is_file():
                os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def place(scratch: Path) -> Place:
    return Place(scratch)


@pytest.fixture
def three(place: Place) -> tuple[Place, list[str]]:
    """A store of three versions, and those, newest first."""
    versions = [place.pack().version]
    for name in ("one", "two"):
        place.change(name)
        versions.insert(0, place.pack().version)
    for age, version in enumerate(versions):
        path = place.store / manifest_key(version)
        os.utime(path, (time.time() - age, time.time() - age))
    return place, versions


def test_a_folder_that_is_no_store_is_said(scratch: Path) -> None:
    (scratch / "store").mkdir()
    location = Location(str(scratch / "store"))
    with pytest.raises(BadStore, match="no store"):
        store.check(Wiring(), NoMeter(), 0, location)
    with pytest.raises(BadStore, match="no store"):
        store.forget(Wiring(), location, 1, None, dry_run=True)
    with pytest.raises(BadStore, match="no store"):
        store.prune(Wiring(), location, dry_run=True)
    with pytest.raises(BadStore, match="no store"):
        ls_store(Wiring(), location)


def test_the_listing_has_the_newest_first_and_says_what_is_current(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    found = ls_store(Wiring(), place.location)
    assert [info.version for info in found] == versions
    assert [info.current for info in found] == [True, False, False]
    assert {info.dataset for info in found} == {"imgs"}
    assert [info.files for info in found] == [42, 41, 40]


# check


def test_a_good_store_has_nothing_bad(three: tuple[Place, list[str]]) -> None:
    place, _ = three
    found = place.check()
    assert found.bad == []
    assert (found.versions, found.bundles) == (3, len(place.objects(BUNDLES)))


def test_workers_find_the_same(three: tuple[Place, list[str]]) -> None:
    place, _ = three
    _flip(min(place.store.glob("bundles/*")))
    alone = place.check().bad
    assert store.check(Wiring(), NoMeter(), 2, place.location).bad == alone


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_anywhere_is_found_and_its_object_named(place: Place, seed: int) -> None:
    place.pack()
    randomness = random.Random(seed)
    folder = [BUNDLES, MANIFESTS, SHARDS][seed % 3]
    path = randomness.choice(sorted((place.store / folder).iterdir()))
    _flip(path, randomness)
    bad = place.check().bad
    assert bad
    named = {problem.key for problem in bad} | {problem.problem for problem in bad}
    assert any(path.name in text for text in named)


def _flip(path: Path, randomness: random.Random = random.Random(0)) -> None:  # noqa: B008 - a seed is a seed
    data = bytearray(path.read_bytes())
    data[randomness.randrange(len(data))] ^= 1 << randomness.randrange(8)
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("folder", [BUNDLES, SHARDS])
def test_what_is_missing_is_found(place: Place, folder: str) -> None:
    place.pack()
    path = min((place.store / folder).iterdir())
    path.unlink()
    assert any(path.name in problem.key + problem.problem for problem in place.check().bad)


def test_a_cut_bundle_is_found(place: Place) -> None:
    place.pack()
    path = min(place.store.glob("bundles/*"))
    os.truncate(path, path.stat().st_size - 1)
    assert place.check().bad[0].key == f"{BUNDLES}{path.name}"


def test_a_pointer_to_nothing_is_found(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    (place.store / manifest_key(versions[0])).unlink()
    assert [problem.key for problem in place.check().bad] == [POINTER_KEY]


def test_a_broken_pointer_is_found(place: Place) -> None:
    place.pack()
    (place.store / POINTER_KEY).write_bytes(b"{}")
    assert [problem.key for problem in place.check().bad] == [POINTER_KEY]


# forget


def test_something_must_say_which(place: Place) -> None:
    place.pack()
    with pytest.raises(UsageError):
        place.forget()


def test_the_last_ones_are_kept(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    assert place.forget(keep_last=2, dry_run=True) == versions[2:]
    assert place.versions() == versions
    assert place.forget(keep_last=2) == versions[2:]
    assert place.versions() == versions[:2]
    assert place.check().bad == []


def test_the_current_version_is_never_forgotten(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    assert place.forget(keep_last=0) == versions[1:]
    assert place.versions() == versions[:1]


def test_an_old_version_that_is_current_again_stays(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    for name in ("one", "two"):
        (place.tree / name).unlink()
    assert place.pack().version == versions[2]
    assert place.forget(keep_last=1) == [versions[1]]


def test_young_versions_are_kept(three: tuple[Place, list[str]]) -> None:
    place, _ = three
    assert place.forget(older_than=3600) == []
    assert place.forget(keep_last=1, older_than=3600) == []


def test_a_forgotten_version_takes_its_stamps_along(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    place.forget(keep_last=1)
    assert [versions[0].partition(":")[2] in key for key in place.objects(STAMPS)] == [True]


# prune


def test_what_a_version_needs_is_not_pruned(three: tuple[Place, list[str]]) -> None:
    place, _ = three
    place.age()
    assert place.prune().deleted == []
    assert place.check().bad == []


def test_what_no_version_needs_goes_when_it_is_old(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    before = place.objects(BUNDLES, SHARDS)
    place.forget(keep_last=1)
    young = place.prune()
    assert young.deleted == []
    assert young.kept_young > 0
    place.age()
    dry = place.prune(dry_run=True)
    assert place.objects(BUNDLES, SHARDS) == before
    pruned = place.prune()
    assert set(pruned.deleted) == set(dry.deleted) == before - place.objects(BUNDLES, SHARDS)
    assert pruned.freed_bytes == dry.freed_bytes > 0
    assert place.check().bad == []
    assert place.versions() == versions[:1]


def test_what_a_killed_pack_left_goes_when_it_is_old(place: Place) -> None:
    place.pack()
    for key in (
        "tmp/0123",
        f"{BUNDLES}{'0' * 32}.tar.zst",
        f"{SHARDS}{'1' * 32}.zst",
        f"{STAMPS}{'2' * 32}-{'3' * 32}.zst",
    ):
        (place.store / key).parent.mkdir(exist_ok=True)
        (place.store / key).write_bytes(b"rest")
    assert place.prune().kept_young == 4
    place.age()
    assert len(place.prune().deleted) == 4
    assert place.check().bad == []


def test_nothing_is_pruned_while_a_manifest_cannot_be_read(three: tuple[Place, list[str]]) -> None:
    place, versions = three
    place.forget(keep_last=1)
    place.age()
    _flip(place.store / manifest_key(versions[0]))
    before = place.objects(BUNDLES, SHARDS, STAMPS)
    with pytest.raises(BadStore):
        place.prune()
    assert place.objects(BUNDLES, SHARDS, STAMPS) == before


def test_a_pack_makes_what_it_reuses_young(three: tuple[Place, list[str]]) -> None:
    place, _ = three
    place.age()
    place.change("three")
    place.pack()
    # As if the version before had been forgotten before the new manifest was there.
    for path in (place.store / MANIFESTS).iterdir():
        path.unlink()
    used = {key for key in place.objects(BUNDLES) if time.time() - (place.store / key).stat().st_mtime < 3600}
    place.prune()
    assert place.objects(BUNDLES) == used
    assert len(used) > 1


def test_a_pack_of_an_older_content_makes_what_that_versions_manifest_names_young(place: Place) -> None:
    first = place.pack().version
    before = {path: path.read_bytes() for path in place.tree.rglob("*") if path.is_file()}
    for path in before:
        path.write_text(f"another {path.name}")
    assert place.pack().version != first
    place.age()
    for path, data in before.items():
        path.write_bytes(data)
    assert place.pack().version == first
    manifest = place.store / manifest_key(first)
    data = manifest.read_bytes()
    for path in (place.store / MANIFESTS).iterdir():
        path.unlink()
    place.prune()  # between the two halves of a forget that began before the pack
    manifest.write_bytes(data)
    assert place.check().bad == []


def test_four_packers_kills_and_a_prune_leave_every_listed_version_whole(scratch: Path) -> None:
    """Each round ages what the last one left, so that prune has something to delete beside the packers."""
    shared = scratch / "shared"
    trees.make_files(shared, 300, directories=6)
    sources = [scratch / f"tree-{number}" for number in range(4)]
    for number, source in enumerate(sources):
        shutil.copytree(shared, source)
        (source / f"own-{number}").write_text(f"only in {number}")
    location = Location(str(scratch / "store"))
    randomness = random.Random(3)
    dsctl = Dsctl(scratch / "root")
    killed = pruned = 0
    for round_ in range(3):
        for source in sources:
            (source / "d000" / f"f{round_:06}").write_text(f"changed in round {round_}")
        packers = [
            dsctl.start(
                "pack", source, scratch / "store", "--name", "imgs", "--files-per-bundle", "50", "--workers", "2"
            )
            for source in sources
        ]
        victims = randomness.sample(packers, 2)
        while any(packer.poll() is None for packer in packers):
            if (scratch / "store" / "dsagent-store.json").exists():
                pruned += len(store.prune(Wiring(), location, dry_run=False).deleted)
            for packer in victims:
                if packer.poll() is None and randomness.random() < 0.1:
                    os.killpg(packer.pid, signal.SIGKILL)
                    killed += 1
            time.sleep(0.02)
        for packer in packers:
            packer.communicate()
            assert packer.returncode in (0, -signal.SIGKILL) or packer in victims
        assert store.check(Wiring(), NoMeter(), 0, location).bad == []
        _age(scratch / "store")
        pruned += len(store.prune(Wiring(), location, dry_run=False).deleted)
        store.forget(Wiring(), location, 2, None, dry_run=False)
    assert store.check(Wiring(), NoMeter(), 0, location).bad == []
    assert killed > 0
    assert pruned > 0
    node = node_at(scratch / "root")
    for info in ls_store(Wiring(), location):
        result = cache(node, CacheRequest(location, version=info.version))
        number = next(int(path.name[4:]) for path in Path(result.path).glob("own-*"))
        assert (Path(result.path) / f"own-{number}").read_text() == f"only in {number}"


def _age(folder: Path) -> None:
    old = time.time() - PRUNE_GRACE_SECONDS - 60
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))


def test_a_prune_spares_what_became_young_after_it_was_listed(place: Place) -> None:
    """A pack that makes the same bundle again makes it young; that happens here while prune reads the manifests."""
    place.pack()
    left = place.store / BUNDLES / f"{'0' * 32}.tar.zst"
    left.write_bytes(b"rest")
    place.age()

    class Touching(DirectoryStore):
        def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
            if key.startswith(MANIFESTS):
                os.utime(left)
            return super().read(key, offset, length)

    class Opens(Wiring):
        def store(self, location: Location) -> Touching:
            return Touching(location)

    assert store.prune(Opens(), place.location, dry_run=False).deleted == []
    assert left.exists()
    place.age()
    assert place.prune().deleted == [f"{BUNDLES}{left.name}"]
