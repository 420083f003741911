"""SIGKILL of the group, of the parent alone and of one worker, at any moment of a caching.

After each kill nothing torn is visible and no process is left; the next command goes on from what is there and never
makes a file of a finished job again; at the end the dataset is whole.
"""

import itertools
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dsagent.adapters.directory import DirectoryStore
from dsagent.core.entries import FILE
from dsagent.core.ports import Location
from dsagent.engine import journal
from dsagent.engine.manifests import read_entries, read_manifest
from dsagent.engine.unpack import Unpack, UnpackPlan
from tests.support import trees
from tests.support.command import Dsctl
from tests.support.killing import GROUP, PARENT, WORKER, Death, Moment, kill
from tests.support.people import give, ordinary_user

FILES = 5_000
KILLS = 102
A_TARGET = KILLS // 3
MID_FETCH = 60
A_STEP = 5
STEPS = ("resolve", "compare", "reserve", "evict", "stage", "fetch", "commit", "record", "lease")
MOST_ATTEMPTS = 400  # a kill may come too late; so many that come too late are a failure
CHAINS = 2  # roots that are worked on at once

Next = tuple[str, str]


@dataclass(frozen=True)
class World:
    """A store, what is in it, and a root that has to evict an older dataset before it can hold it."""

    store: Path
    expected: trees.Tree
    template: Path
    capacity: int
    jobs: dict[str, list[bytes]]
    prefix: tuple[str, ...] = ()

    def cache(self) -> tuple[str | Path, ...]:
        """The command that is killed."""
        capacity = ("--capacity", str(self.capacity))
        return ("cache", self.store, *capacity, "--lease", "test", "--progress", "none")

    def new_root(self, where: Path) -> Dsctl:
        """A root as it was before."""
        shutil.copytree(self.template, where, symlinks=True)
        if self.prefix:
            give(where)
        return Dsctl(where, {"DSAGENT_WORKERS": "2"}, self.prefix)


def _jobs(store: Path) -> dict[str, list[bytes]]:
    """The files of each unpack job by the job's key."""
    opened = DirectoryStore(Location(str(store)))
    (path,) = store.glob("manifests/*.json")
    manifest = read_manifest(opened, f"xxh3:{path.stem}")
    plan = UnpackPlan(opened.location, manifest.bundles, "", "")
    jobs: list[Unpack] = []
    for entry in read_entries(opened, manifest):
        if entry.kind == FILE:
            jobs += plan.add(entry)
    jobs += plan.rest()
    return {job.key: [file[0] for file in job.files] for job in jobs}


def _world(folder: Path, files: int, prefix: tuple[str, ...] = ()) -> World:
    source, old, store, template = (folder / name for name in ("tree", "old", "store", "template"))
    trees.make_files(source, files)
    old.mkdir()
    (old / "large").write_bytes(os.urandom(8 << 20))
    dsctl = Dsctl(template)
    dsctl.ok("pack", source, store, "--name", "tree", "--files-per-bundle", "250")
    dsctl.ok("cache", old)
    needed = dsctl.ok("cache", store, "--dry-run")["needed_bytes"]
    jobs = _jobs(store)
    assert len(jobs) >= files // 250
    return World(store, trees.look(source), template, needed + (4 << 20), jobs, prefix)


@dataclass
class Tally:
    """What has been reached so far, and what to aim at next."""

    target: int
    mid_fetch: int
    step: int
    targets: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    middles: int = 0
    attempts: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random()
        self._turn = itertools.cycle((GROUP, PARENT, WORKER))

    def next(self) -> Next | None:
        """Aims at what is lacking most; None when all is reached."""
        with self.lock:
            self.attempts += 1
            assert self.attempts < MOST_ATTEMPTS, self
            lacking = [step for step in STEPS if self.steps[step] < self.step]
            short = [name for name in (GROUP, PARENT, WORKER) if self.targets[name] < self.target]
            if not lacking and not short and self.middles >= self.mid_fetch:
                return None
            target = next(name for name in self._turn if name in short or not short)
            if (self.middles < self.mid_fetch and self._random.random() < 0.7) or not lacking:
                return target, "fetch"
            step = self._random.choice(lacking)
            # There is no worker before a flight begins.
            if target == WORKER and step in ("resolve", "compare", "lease"):
                target = PARENT if self.targets[PARENT] < self.targets[GROUP] else GROUP
            return target, step

    def count(self, death: Death) -> None:
        """Counts a kill that met the command alive."""
        with self.lock:
            if death.killed:
                self.targets[death.target] += 1
                self.steps[death.step] += 1
                self.middles += death.mid_fetch


def _chain(world: World, folder: Path, tally: Tally, number: int) -> None:
    """Kills caching after caching; a root whose dataset was published is followed by a new one."""
    for attempt in itertools.count():
        dsctl = world.new_root(folder / f"root-{number}-{attempt}")
        for target, step in iter(tally.next, None):
            before = _finished(dsctl, world)
            death = kill(
                dsctl, target, Moment(step, _unstaged(dsctl, world) if step == "fetch" else b""), *world.cache()
            )
            tally.count(death)
            _assert_kept(dsctl, before)
            # Without this folder there is nothing that could be shown, and a listing takes as long as the kill.
            if (dsctl.root / "versions/_local/tree").exists() and _assert_nothing_torn(dsctl, world):
                break
        else:
            _assert_finishes(dsctl, world)
            return
        _assert_finishes(dsctl, world)
        trees.remove(dsctl.root)


def _unstaged(dsctl: Dsctl, world: World) -> bytes:
    """A file that no attempt has staged yet."""
    staged = {path for data in dsctl.root.glob("staging/*/data") for path in trees.inodes(data)}
    left = [path for job in world.jobs.values() for path in job if path not in staged]
    return random.choice(left) if left else b""


def _finished(dsctl: Dsctl, world: World) -> dict[bytes, int]:
    """The inodes of all files of jobs that the journal has as done."""
    done: dict[bytes, int] = {}
    for folder in dsctl.root.glob("staging/*"):
        keys = journal.read(str(folder / "journal"))
        assert keys.keys() <= world.jobs.keys()
        found = trees.inodes(folder / "data") if keys else {}
        done |= {path: found[path] for key in keys for path in world.jobs[key]}
    return done


def _assert_kept(dsctl: Dsctl, finished: dict[bytes, int]) -> None:
    """What was finished before was not made again, wherever it lies now."""
    places = [*dsctl.root.glob("staging/*/data"), *dsctl.root.glob("versions/_local/tree/*/data")]
    if finished:
        (place,) = places
        found = trees.inodes(place)
        again = [path for path, inode in finished.items() if found.get(path) != inode]
        assert not again, f"{len(again)} of {len(finished)} finished files were fetched again: {again[:3]}"


def _assert_nothing_torn(dsctl: Dsctl, world: World) -> bool:
    """Whatever is shown is whole; whether the dataset is shown."""
    shown = dsctl.visible()
    for name, data in shown.items():
        if name.startswith("tree@"):
            trees.assert_published(data, world.expected)
        else:
            assert (data / "large").stat().st_size == 8 << 20
    return any(name.startswith("tree@") for name in shown)


def _assert_finishes(dsctl: Dsctl, world: World) -> None:
    before = _finished(dsctl, world)
    result = dsctl.ok(*world.cache())
    trees.assert_published(Path(result["path"]), world.expected)
    _assert_kept(dsctl, before)
    assert dsctl.ok("verify", "tree")["bad"] == []
    assert list((dsctl.root / "staging").iterdir()) == []
    assert list((dsctl.root / "trash").iterdir()) == []


def _kill_until(world: World, folder: Path, tally: Tally) -> None:
    with ThreadPoolExecutor(CHAINS) as executor:
        for chain in [executor.submit(_chain, world, folder, tally, number) for number in range(CHAINS)]:
            chain.result()
    assert sum(tally.targets.values()) >= 3 * tally.target
    assert all(tally.targets[target] >= tally.target for target in (GROUP, PARENT, WORKER)), tally.targets
    assert all(tally.steps[step] >= tally.step for step in STEPS), tally.steps
    assert tally.middles >= tally.mid_fetch


def test_kills_at_any_moment(scratch: Path) -> None:
    tally = Tally(A_TARGET, MID_FETCH, A_STEP)
    _kill_until(_world(scratch, FILES), scratch, tally)


@pytest.fixture
def as_ordinary_user(scratch: Path) -> Iterator[tuple[str, ...]]:
    give(scratch)
    with ordinary_user() as prefix:
        yield tuple(prefix)


@pytest.mark.needs("root", "mount", "setpriv")
def test_kills_at_any_moment_as_an_ordinary_user(scratch: Path, as_ordinary_user: tuple[str, ...]) -> None:
    tally = Tally(3, 4, 0)
    _kill_until(_world(scratch, FILES, as_ordinary_user), scratch, tally)
