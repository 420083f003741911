"""One fetch in progress: its lock, its workers, and its progress for those who wait for it."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dsagent.core.manifest import Totals
from dsagent.core.space import Space
from dsagent.engine.crew import Crew
from dsagent.service.node import Node, held

POLL_SECONDS = 0.1
TELL_SECONDS = 0.5
# Below this, starting a worker takes longer than the work.
SMALL_FILES = 200
SMALL_BYTES = 16 << 20


class Flight(NamedTuple):
    """A flight whose lock is held; `waited` says that another process had it before."""

    id: str
    crew: Crew
    waited: bool


@contextlib.contextmanager
def flight(node: Node, flight_id: str, subject: str, totals: Totals) -> Iterator[Flight]:
    """Holds the flight's lock, which its workers hold too: it is free when the last of them is gone.

    Shows the other flight's progress while another process has it.
    """
    waited = False

    def waiting() -> None:
        nonlocal waited
        if not waited:
            node.meter.start("wait for", subject, totals.bytes, totals.files)
        waited = True
        shown.show(told(node, flight_id))
        time.sleep(POLL_SECONDS)

    shown = _Shown(node)
    small = totals.files <= SMALL_FILES and totals.bytes <= SMALL_BYTES
    with held(node.lock(flight_id), waiting) as fd:
        if waited:
            node.meter.stop()
        meter = FlightMeter(node, flight_id)
        with Crew(0 if small else node.workers, node.open, meter.advance, (fd,), node.gate) as crew:
            if not waited:
                crew.start()
            yield Flight(flight_id, crew, waited)


class FlightMeter:
    """Passes progress on, and writes it down for processes that wait for the flight or ask what it still needs."""

    def __init__(self, node: Node, flight_id: str) -> None:
        self._node = node
        self._path = _progress(node, flight_id)
        self._lock = threading.Lock()
        self._told = time.monotonic()
        self._bytes = self._files = 0

    def advance(self, size: int, files: int) -> None:
        """Counts progress."""
        self._node.meter.advance(size, files)
        with self._lock:
            self._bytes += size
            self._files += files
            now = time.monotonic()
            if now - self._told < TELL_SECONDS:
                return
            self._told = now
        with contextlib.suppress(OSError):  # without it a display stands still, and space counts as needed for longer
            scratch = self._path.with_suffix(f".{threading.get_ident()}")
            scratch.write_text(json.dumps([self._bytes, self._files]))
            os.replace(scratch, self._path)


def told(node: Node, flight_id: str) -> Space:
    """Bytes and files that a flight has behind it."""
    try:
        size, files = json.loads(_progress(node, flight_id).read_text())
    except (OSError, ValueError):
        return Space()
    return Space(size, files)


def _progress(node: Node, flight_id: str) -> Path:
    return node.staging / flight_id / "progress"


class _Shown:
    """What of another process's progress the meter was told already."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._bytes = self._files = 0

    def show(self, done: Space) -> None:
        """Tells the meter what is new."""
        self._node.meter.advance(max(0, done.bytes - self._bytes), max(0, done.inodes - self._files))
        self._bytes, self._files = max(self._bytes, done.bytes), max(self._files, done.inodes)
