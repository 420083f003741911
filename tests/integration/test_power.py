"""A cut of power: what the device holds at a random moment, seen by a kernel that booted anew.

The root lies on ext4 on a loop device. While datasets are cached, copies of its backing file are taken. Each is mounted
(the filesystem replays its journal) in a mount namespace in which the kernel says another boot id; nothing that a
command then shows may differ from its manifest. ext4 commits every five seconds; here it is made to at random moments,
so that many a copy has files without their bytes.
"""

import os
import random
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import trees
from tests.support.command import Dsctl, Process
from tests.support.devices import ext4, mounted
from tests.support.namespaces import mounts

COPIES = 20
FILES = 600

# A new boot: the kernel's id of it is another one.
_BOOT = 'mount --bind "$1" /proc/sys/kernel/random/boot_id'

pytestmark = pytest.mark.needs("root", "loop", "mount", "ext4")


class Copier(threading.Thread):
    """Copies the device at random moments while commands run, as if the power went off then."""

    def __init__(self, image: Path, disk: Path, copies: Path) -> None:
        super().__init__()
        self._image, self._disk, self._copies = image, disk, copies
        self._random = random.Random()
        self.taken: list[Path] = []
        self.process: Process | None = None

    def run(self) -> None:
        while len(self.taken) < COPIES:
            self._wait()
            if self._random.random() < 0.8:
                self._commit()
            # Between two looks at the same bytes nothing was written: the copy is one moment's.
            self._signal(signal.SIGSTOP)
            copy = self._copies / str(len(self.taken))
            subprocess.run(["cp", "--sparse=always", str(self._image), str(copy)], check=True)
            if subprocess.run(["cmp", "-s", str(self._image), str(copy)], check=False).returncode == 0:
                self.taken.append(copy)
            self._signal(signal.SIGCONT)

    def _wait(self) -> None:
        """Until a random moment; more often than not one when something is half-written or just published."""
        pattern = self._random.choice(["staging/*/data/*/*", "versions/*/*/*/data", "locks"])
        while not any((self._disk / "root").glob(pattern)):
            time.sleep(0.001)
        time.sleep(self._random.uniform(0, 0.5))

    def _commit(self) -> None:
        """The kernel may write in any order: here what says that data are there comes first, the data last."""
        with (self._disk / "pulse").open("wb") as file:
            file.write(bytes(self._random.randrange(100)))
        root = self._disk / "root"
        for path in (self._disk / "pulse", *root.glob("catalog.sqlite*"), *root.glob("versions/*/*/*/manifest/**/*")):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            os.fsync(fd)  # and with it ext4's journal, which has all names, sizes of 0 and modes
            os.close(fd)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return


def test_what_is_shown_after_a_cut_of_power_is_whole(scratch: Path) -> None:
    image, disk, copies = (scratch / name for name in ("image", "disk", "copies"))
    copies.mkdir()
    stores = {}
    for name in ("one", "two"):
        trees.make_files(scratch / name, FILES, seed=ord(name[0]), directories=4, largest=20_000)
        stores[name] = scratch / f"store-{name}"
        Dsctl(scratch / "packing").ok("pack", scratch / name, stores[name], "--files-per-bundle", "100")
    expected = {name: trees.look(scratch / name) for name in stores}
    dsctl = Dsctl(disk / "root", {"DSAGENT_WORKERS": "2", "DSAGENT_KEEP_FREE": "1MiB"})
    with ext4(image, disk, 96 << 20):
        copier = Copier(image, disk, copies)
        copier.start()
        while copier.is_alive():
            for store in stores.values():
                copier.process = dsctl.start("cache", store, "--progress", "none")
                _, err = copier.process.communicate()
                assert copier.process.returncode == 0, err
            for name in stores:
                dsctl.ok("evict", name)
        copier.join()
    assert len(copier.taken) == COPIES
    (scratch / "boot").write_text(f"{uuid.uuid4()}\n")
    seen = Counter[str]()
    for copy in copier.taken:
        with mounted(copy, disk), mounts(_BOOT, str(scratch / "boot")) as enter:
            booted = replace(dsctl, environment={**dsctl.environment, "DSAGENT_WORKERS": "1"}, prefix=enter)
            seen += _look(booted, stores, expected)
    # Or else the copies would say nothing about what is half-written.
    assert seen["unsynced"] + seen["staged"] > 0, seen


def _look(dsctl: Dsctl, stores: dict[str, Path], expected: dict[str, trees.Tree]) -> Counter[str]:
    """What is shown at once, and after a caching that must find out what of the rest can be trusted."""
    lying = len(list(dsctl.root.glob("versions/*/*/*/data")))
    staged = any(dsctl.root.glob("staging/*/data/*"))
    shown = _assert_whole(dsctl, expected)
    name = random.choice(list(stores))
    dsctl.ok("cache", stores[name], "--progress", "none")
    assert name in _assert_whole(dsctl, expected)
    return Counter(unsynced=lying - len(shown), staged=int(staged))


def _assert_whole(dsctl: Dsctl, expected: dict[str, trees.Tree]) -> set[str]:
    """The names of what is shown."""
    shown = {reference.partition("@")[0]: data for reference, data in dsctl.visible().items()}
    for name, data in shown.items():
        trees.assert_published(data, expected[name])
    return set(shown)
