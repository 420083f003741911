"""A filesystem of the bench's own: ext4 in a file, mounted through a loop device."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Nothing is initialised later in the background, where it would run beside what is timed.
MKFS = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
# Files under some 400 bytes lie in their inode: a million of them take half a gigabyte.
INLINE = ["-O", "inline_data", "-I", "512"]

BUSY_SECONDS = 10


@contextmanager
def loop_ext4(directory: Path, size: int, mkfs: list[str] | None = None) -> Iterator[Path]:
    """Mount a new ext4 of `size` bytes whose backing file lies in `directory`; gone afterwards.

    Raises:
        subprocess.CalledProcessError: mkfs or mount failed (mounting needs root).
    """
    image = directory / f"bench-{os.getpid()}-{os.urandom(3).hex()}.ext4"
    mount = image.with_suffix(".mnt")
    mount.mkdir()
    try:
        with image.open("wb") as file:
            file.truncate(size)
        subprocess.run([*MKFS, *(mkfs or []), image], check=True)
        subprocess.run(["mount", "-o", "loop", image, mount], check=True)
        try:
            yield mount
        finally:
            _unmount(mount)
    finally:
        image.unlink(missing_ok=True)
        mount.rmdir()


def _unmount(mount: Path) -> None:
    """Unmount as soon as nobody uses it: a server's last process may still be ending. Lazily after a while."""
    deadline = time.monotonic() + BUSY_SECONDS
    while subprocess.run(["umount", mount], check=False, stderr=subprocess.DEVNULL).returncode:
        if time.monotonic() > deadline:
            subprocess.run(["umount", "-l", mount], check=True)
            return
        time.sleep(0.1)


def settle(mount: Path) -> None:
    """Write back what is dirty and give freed blocks back, so that no run pays for the one before."""
    subprocess.run(["sync", "-f", mount], check=True)
    subprocess.run(["fstrim", mount], check=True)


def remove(path: Path) -> None:
    """Delete a tree or a file, if it is there, also where directories are 0555."""
    subprocess.run(["rm", "-rf", "--", path], check=True)
