"""The sources and stores of a soak, each with all contents that it ever had."""

import hashlib
import os
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import trees
from tests.support.command import Dsctl
from tests.support.trees import Seen, Tree

BLOCK = 4096
# A reading may meet a change, and the next one before it ends: each of its entries is from one of so many contents.
WINDOW = 3


@dataclass(frozen=True)
class Change:
    """One file's new content; None removes it."""

    path: bytes
    content: bytes | None
    executable: bool
    mtime_ns: int


class Origin:
    """A folder of files, `name`, or a store of one; `contents` are all that it ever had, the present one last."""

    is_store = False

    def __init__(self, name: str, place: Path, randomness: random.Random, files: int, largest: int) -> None:
        self.name = name
        self.folder = place / name
        self._scratch = place / f"{name}.new"
        self._random = randomness
        self._largest = largest
        self._lock = threading.Lock()
        trees.make_files(self.folder, files, randomness.randrange(1 << 30), directories=5, largest=largest)
        self.contents: list[Tree] = [trees.look(self.folder)]

    @property
    def url(self) -> str:
        """What a task names."""
        return str(self.folder)

    @property
    def present(self) -> Tree:
        """What it has now."""
        return self.contents[-1]

    def change(self) -> None:
        """Files are replaced, made and removed, some or many."""
        with self._lock:
            self._change()

    def knows(self, found: Tree) -> bool:
        """Whether it ever had this content, or a reading beside a change may have met it."""
        with self._lock:
            contents = list(self.contents)
        if found in contents:
            return True
        windows = [contents[index : index + WINDOW] for index in range(max(1, len(contents) - WINDOW + 1))]
        return not self.is_store and any(_is_mixture(found, window) for window in windows)

    def upper_bound(self) -> int:
        """Bytes that its largest content may take on a disk."""
        with self._lock:
            return max(allocated(tree) for tree in self.contents[-WINDOW:])

    def _change(self) -> None:
        changes = list(self._draw())
        tree = dict(self.present)
        for change in changes:
            if change.content is None:
                del tree[change.path]
            else:
                digest = hashlib.sha256(change.content).digest()
                tree[change.path] = Seen("f", change.executable, len(change.content), change.mtime_ns, digest)
        self.contents.append(tree)  # before any of it can be read
        for change in changes:
            self._apply(change)

    def _draw(self) -> Sequence[Change]:
        """Changes of different files; directories stay."""
        files = [path for path, seen in self.present.items() if seen.kind == "f"]
        many = self._random.random() < 0.2
        found = {}
        for _ in range(len(files) // 2 if many else self._random.randrange(1, 5)):
            path = self._random.choice(files)
            if self._random.random() < 0.2:
                path = path[:5] + b"n%08x" % self._random.randrange(1 << 32)
            gone = path in self.present and self._random.random() < 0.1
            content = None if gone else self._random.randbytes(self._random.randrange(16, self._largest))
            mtime = self._random.randrange(1_500_000_000, 1_700_000_000) * 1_000_000_000
            found[path] = Change(path, content, self._random.random() < 0.2, mtime)
        return list(found.values())

    def _apply(self, change: Change) -> None:
        where = self.folder / os.fsdecode(change.path)
        if change.content is None:
            where.unlink()
            return
        self._scratch.write_bytes(change.content)
        self._scratch.chmod(0o755 if change.executable else 0o644)
        os.utime(self._scratch, ns=(change.mtime_ns, change.mtime_ns))
        self._scratch.replace(where)


class StoredOrigin(Origin):
    """A store into which a folder is packed after each change. Its contents are those that were packed."""

    is_store = True

    def __init__(self, name: str, place: Path, randomness: random.Random, files: int, largest: int) -> None:
        super().__init__(name, place, randomness, files, largest)
        self._store = place / "stores" / name
        self.versions: list[str] = []
        self._pack()

    @property
    def url(self) -> str:
        return str(self._store)

    def _change(self) -> None:
        super()._change()
        self._pack()

    def _pack(self) -> None:
        packed = Dsctl(self.folder.parent / "no-root").ok("pack", self.folder, self._store)
        self.versions.append(packed["version"])


class World:
    """All origins. What one is called says which it is, also behind another name: `s1`, `alias-s1`."""

    def __init__(self, place: Path, seed: int) -> None:
        randomness = random.Random(seed)
        place.mkdir()
        self.origins: dict[str, Origin] = {}
        for number in range(6):
            files, largest = randomness.choice([(60, 16_000), (150, 12_000), (300, 8_000), (6, 400_000)])
            self._add(Origin(f"s{number}", place, random.Random(randomness.random()), files, largest))
        for number in range(2):
            self._add(StoredOrigin(f"t{number}", place, random.Random(randomness.random()), 200, 10_000))

    def origin_of(self, dataset: str) -> Origin:
        """Where a dataset comes from."""
        return self.origins[dataset.rpartition("-")[2]]

    def _add(self, origin: Origin) -> None:
        self.origins[origin.name] = origin


def allocated(tree: Tree) -> int:
    """Bytes that a tree takes on a disk, at most: blocks of files and of directories whose names are half full."""
    files = sum(-(-seen.size // BLOCK) * BLOCK for seen in tree.values() if seen.kind == "f")
    directories = 1 + sum(seen.kind == "d" for seen in tree.values())
    return files + directories * BLOCK + 2 * sum(len(path) + 264 for path in tree)


def _is_mixture(found: Tree, window: Sequence[Tree]) -> bool:
    paths = found.keys() | set().union(*window)
    return all(any(found.get(path) == tree.get(path) for tree in window) for path in paths)
