"""Processes that a test started, however they came about: each carries a mark in its environment."""

import fcntl
import os
import time
from pathlib import Path

MARK = "TEST_MARK"
_PF_EXITING = 0x4


def marked(mark: str) -> dict[int, str]:
    """The living processes with that mark and their command lines.

    One that the kernel is taking down, or that only waits for its parent to ask for its status, runs no more.
    """
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
            if f"{MARK}={mark}".encode() not in environment.split(b"\0"):
                continue
            stat = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ProcessLookupError):
            continue
        if stat[0] not in "ZX" and not int(stat[6]) & _PF_EXITING:
            found[int(entry.name)] = command
    return found


def children(pid: int) -> list[int]:
    """The child processes of all its threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found


def wait_for_locks(folder: Path, seconds: float = 30) -> None:
    """Waits until nobody holds a flight's lock below `folder`."""
    end = time.monotonic() + seconds
    for lock in folder.glob("flight-*"):
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < end, f"{lock} is still held"
                time.sleep(0.001)
        os.close(fd)
