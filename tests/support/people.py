"""Running a command as an ordinary user, on machines where root's Python lies below a folder that only root enters."""

import os
import sys
from pathlib import Path

USER = 65534

# In a mount namespace of its own, an empty folder with only the interpreter in it takes the place of the closed one.
_OPEN = """
set -e
closed=$1 inner=$2; shift 2
if [ -n "$closed" ]; then
    mount --bind "$inner" /mnt
    mount -t tmpfs -o mode=755 none "$closed"
    mkdir -p "$inner"
    mount --bind /mnt "$inner"
    umount /mnt
fi
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"""


def as_user() -> list[str]:
    """The command to run another one under; for root only. Without root the tests are an ordinary user already."""
    inner = Path(sys.base_prefix)
    closed = next((str(folder) for folder in reversed(inner.parents) if not folder.stat().st_mode & 0o001), "")
    return ["unshare", "--mount", "sh", "-c", _OPEN, "as-user", closed, str(inner)]


def give(folder: Path) -> None:
    """Makes the ordinary user the owner of a tree."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
