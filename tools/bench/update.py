"""An update in which one file in a hundred changed, from a store and from a directory."""

import re
import shutil
import time
from pathlib import Path

from tools.bench import trees
from tools.bench.disk import loop_ext4, remove, settle
from tools.bench.setting import GIB, MEMORY, Dsctl, Setting, command
from tools.bench.timing import Contender, Result, race

FROM_STORE, FROM_DIRECTORY, LINKS = "update from a store", "update from a directory", "C loop that links"
CHANGED = 0.01
# Stamps younger than this are read again whatever they say.
STAMP_AGE_SECONDS = 2.5
OPENED = re.compile(r"= \d+<(?P<path>[^>]+)>")


def update(setting: Setting) -> Result:
    """Updates against the links that they are mostly made of; bytes and opens on a run of their own."""
    result = Result("update", f"Update {setting.many.files:,} files of which 1 % changed")
    with loop_ext4(MEMORY, 10 * GIB) as disk:
        bench = _Updates(disk, trees.make(disk / "source", setting.many))
        bench.make_linked(setting.native)
        contenders = [
            Contender(FROM_DIRECTORY, bench.from_directory, prepare=bench.change, clean=lambda: settle(disk)),
            Contender(FROM_STORE, bench.from_store, prepare=bench.change_and_pack, clean=lambda: settle(disk)),
            Contender(LINKS, lambda: bench.link(setting.native), clean=bench.clean),
        ]
        result.seconds = race(contenders, setting.rounds, setting.say)
        for name in (FROM_STORE, FROM_DIRECTORY):
            result.ratio(name, LINKS, 2.0)
        for name, fraction in bench.fetched.items():
            result.note(f"{name}: bytes fetched", 100 * fraction, "%", 5)
        if shutil.which("strace"):
            for name, fraction in bench.opened().items():
                result.note(f"{name}: files opened", 100 * fraction, "%", 5)
        else:
            setting.say("  strace is not installed: files opened are not counted")
    return result


class _Updates:
    """A source that changes, a store of it, and two roots that follow."""

    def __init__(self, disk: Path, tree: trees.Tree) -> None:
        self._tree, self._disk = tree, disk
        self._store = disk / "store"
        self._by_directory, self._by_store = Dsctl(disk / "by-directory"), Dsctl(disk / "by-store")
        self._round = 0
        self.fetched: dict[str, float] = {}
        self._changed = trees.change(tree, CHANGED, 0)
        time.sleep(STAMP_AGE_SECONDS)
        self._by_directory.run("pack", tree.root, self._store, "--name", "bench")
        self._by_store.run("cache", self._store)
        self._by_directory.run("cache", tree.root, "--name", "bench")
        self._names = tree.write_list(disk / "names", without=self._changed)

    def change(self) -> None:
        self._round += 1
        trees.change(self._tree, CHANGED, self._round)
        time.sleep(STAMP_AGE_SECONDS)

    def change_and_pack(self) -> None:
        self.change()
        self._by_directory.run("pack", self._tree.root, self._store, "--name", "bench")

    def from_directory(self) -> None:
        self._note(FROM_DIRECTORY, self._by_directory.run("cache", self._tree.root, "--name", "bench"))

    def from_store(self) -> None:
        self._note(FROM_STORE, self._by_store.run("cache", self._store))

    def make_linked(self, native: Path) -> None:
        """Files for the C loop to link: a link changes its file's ctime, so they cannot be the source's."""
        command(native, "create", self._names, self._disk / "linked", "2")

    def link(self, native: Path) -> None:
        command(native, "link", self._names, self._disk / "linked", self._disk / "links")

    def clean(self) -> None:
        remove(self._disk / "links")
        settle(self._disk)

    def opened(self) -> dict[str, float]:
        """Opens of files on the bench's disk, of whatever kind, per file of the dataset."""
        self.change_and_pack()
        return {
            FROM_STORE: self._count_opens(self._by_store.command("cache", self._store)),
            FROM_DIRECTORY: self._count_opens(self._by_directory.command("cache", self._tree.root, "--name", "bench")),
        }

    def _count_opens(self, words: list[str]) -> float:
        log = self._disk / "strace"
        # dsctl's own descriptors are numbers only; -y gives each its path.
        command("strace", "-f", "-qq", "-y", "--trace=open,openat,openat2", "-o", log, *words)
        opens = 0
        with log.open(errors="replace") as lines:
            for line in lines:
                found = OPENED.search(line)
                if found and "O_DIRECTORY" not in line and found["path"].startswith(str(self._disk)):
                    opens += 1
        return opens / len(self._tree.sizes)

    def _note(self, name: str, document: dict[str, object]) -> None:
        if document["outcome"] != "updated":
            raise RuntimeError(f"not an update: {document}")
        fetched = document["fetched_bytes"]
        assert isinstance(fetched, int)
        self.fetched[name] = fetched / self._tree.bytes
