"""Small filesystems of their own on loop devices, so that their limits are real."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.trees import remove


@contextmanager
def ext4(image: Path, at: Path, size: int, *mkfs: str) -> Iterator[Path]:
    """A new ext4 filesystem of `size` bytes in the file `image`, mounted at `at`."""
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", *mkfs, str(image)], check=True)
    with mounted(image, at) as path:
        yield path


@contextmanager
def mounted(image: Path, at: Path, options: str = "loop") -> Iterator[Path]:
    """The filesystem in the file `image`, mounted at `at`."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", options, str(image), str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
        image.unlink()
        remove(at)
