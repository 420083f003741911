"""The nodes' control groups, below one of the cluster's own, in every hierarchy that the machine has."""

import os
import signal
from pathlib import Path

from tools.cluster.layout import CGROUP
from tools.cluster.rooms import wait_until

_TOP = Path("/sys/fs/cgroup")


def make(path: str) -> None:
    """Make a group such as `/a/b`, able to hold processes, in each hierarchy."""
    for hierarchy in _hierarchies():
        group = hierarchy
        for part in path.strip("/").split("/"):
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):  # version 1 makes them empty, and then nothing can run there
                if (group / file).exists() and not (group / file).read_text().strip():
                    (group / file).write_text((parent / file).read_text())


def remove() -> None:
    """Kill what is in the cluster's groups, wherever it came from, and remove them."""
    groups = [hierarchy / CGROUP for hierarchy in _hierarchies()]

    def empty() -> bool:
        pids = {pid for group in groups for pid in _processes(group)}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return not pids

    wait_until(empty, f"the processes in {CGROUP} to end", 30)
    for group in groups:
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        if group.exists():
            group.rmdir()


def _hierarchies() -> list[Path]:
    """The mount of cgroup2, or, with version 1, one a controller."""
    if (_TOP / "cgroup.controllers").exists():
        return [_TOP]
    return [path for path in _TOP.iterdir() if path.is_dir() and not path.is_symlink() and path.is_mount()]


def _processes(group: Path) -> set[int]:
    found: set[int] = set()
    for file in group.rglob("cgroup.procs"):
        found |= {int(line) for line in file.read_text().split()}
    return found - {0}
