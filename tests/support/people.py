"""Running a command as an ordinary user, on machines where root's Python lies below a folder that only root enters."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.namespaces import mounts

USER = 65534

# An empty folder with only the interpreter in it takes the place of the closed one.
_OPEN = """
if [ -n "$1" ]; then
    mount --bind "$2" /mnt
    mount -t tmpfs -o mode=755 none "$1"
    mkdir -p "$2"
    mount --bind /mnt "$2"
    umount /mnt
fi
"""


@contextmanager
def ordinary_user() -> Iterator[list[str]]:
    """The command to run another one under; for root only. Without root the tests are an ordinary user already."""
    inner = Path(sys.base_prefix)
    closed = next((str(folder) for folder in reversed(inner.parents) if not folder.stat().st_mode & 0o001), "")
    with mounts(_OPEN, closed, str(inner)) as enter:
        yield [*enter, "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


def give(folder: Path) -> None:
    """Makes the ordinary user the owner of a tree."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
