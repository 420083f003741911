"""Trees of files made from a seed: the same names, sizes and bytes on every machine."""

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

POOL_BYTES = 16 << 20


@dataclass(frozen=True)
class Shape:
    """How a tree looks: `files` of `smallest`..`largest` bytes, `per_directory` in each directory."""

    files: int
    smallest: int
    largest: int
    per_directory: int = 200


@dataclass(frozen=True)
class Tree:
    """A tree on disk; `sizes` maps each relative path to its size, in depth-first order."""

    root: Path
    sizes: dict[str, int]

    @property
    def bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(self.sizes.values())

    def write_list(self, target: Path, without: frozenset[str] = frozenset()) -> Path:
        """Write the lines "SIZE PATH" that native.c reads."""
        with target.open("w") as out:
            out.writelines(f"{size} {path}\n" for path, size in self.sizes.items() if path not in without)
        return target


class Content:
    """Bytes for files: by the toss of a coin incompressible like a JPEG or like text.

    Not in turns: two archives of the same files in different orders would differ in size by a percent.
    """

    def __init__(self, seed: int) -> None:
        """Make a generator; `seed` fixes every byte."""
        self._random = random.Random(seed)
        self._text = self._words(POOL_BYTES)

    def make(self, size: int) -> bytes:
        """Bytes of the next file."""
        if self._random.random() < 0.5:
            return self._random.randbytes(size)
        start = self._random.randrange(POOL_BYTES - size)
        return self._text[start : start + size]

    def _words(self, total: int) -> bytes:
        letters = "etaoinshrdlucmfwypvbgk"
        words = ["".join(self._random.choices(letters, k=self._random.randint(2, 10))) for _ in range(5000)]
        weights = [1 / (rank + 1) for rank in range(len(words))]
        return " ".join(self._random.choices(words, weights, k=total // 3)).encode()[:total]


def make(root: Path, shape: Shape, seed: int = 1) -> Tree:
    """Write a tree under `root` (created)."""
    content = Content(seed)
    sizes = dict(_plan(shape, random.Random(seed)))
    for path, size in sizes.items():
        target = root / path
        if not target.parent.exists():
            target.parent.mkdir(parents=True)
        target.write_bytes(content.make(size))
    return Tree(root, sizes)


def make_tiny(root: Path, shape: Shape) -> Tree:
    """Write a tree whose files all begin with their own number, quickly: for cases about counts."""
    sizes = dict(_plan(shape, random.Random(shape.files)))
    filler = Content(shape.files).make(shape.largest)
    directory, open_directory = "", -1
    root.mkdir(parents=True)
    for number, (path, size) in enumerate(sizes.items()):
        parent, name = path.rsplit("/", 1)
        if parent != directory:
            directory = parent
            (root / parent).mkdir()
            if open_directory >= 0:
                os.close(open_directory)
            open_directory = os.open(root / parent, os.O_RDONLY | os.O_DIRECTORY)
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=open_directory)
        os.write(file, (b"%012d" % number + filler)[:size])
        os.close(file)
    os.close(open_directory)
    return Tree(root, sizes)


def change(tree: Tree, fraction: float, round_number: int) -> frozenset[str]:
    """Rewrite the same `fraction` of the files, same sizes, with bytes of their own for each round."""
    step = round(1 / fraction)
    changed = list(tree.sizes)[::step]
    content = Content(1_000_000 + round_number)
    for path in changed:
        (tree.root / path).write_bytes(content.make(tree.sizes[path]))
    return frozenset(changed)


def compile_native(build: Path) -> Path:
    """Compile native.c.

    Raises:
        subprocess.CalledProcessError: the compiler refused.
    """
    program = build / "native"
    source = Path(__file__).with_name("native.c")
    subprocess.run(["cc", "-O2", "-Wall", "-pthread", "-o", program, source], check=True)
    return program


def _plan(shape: Shape, chance: random.Random) -> Iterator[tuple[str, int]]:
    for number in range(shape.files):
        directory = f"class{number // shape.per_directory:05d}"
        yield f"{directory}/item{number:07d}.bin", chance.randint(shape.smallest, shape.largest)
