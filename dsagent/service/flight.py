"""One fetch in progress: its lock, its workers, and its progress for those who wait for it."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsagent.core.manifest import Totals
from dsagent.core.ports import Reservation
from dsagent.core.space import Space
from dsagent.engine.crew import Crew
from dsagent.service.node import Node, held

POLL_SECONDS = 0.1
TELL_SECONDS = 0.5
# Below this, starting a worker takes longer than the work.
SMALL_FILES = 200
SMALL_BYTES = 16 << 20


@dataclass(frozen=True)
class Flight:
    """A flight whose lock is held; `waited` says that another process had it before."""

    id: str
    crew: Crew
    meter: "FlightMeter"
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
        shown.show(_told(node.staging / flight_id / "progress"))
        time.sleep(POLL_SECONDS)

    shown = _Shown(node)
    small = totals.files <= SMALL_FILES and totals.bytes <= SMALL_BYTES
    with held(node.lock(flight_id), waiting) as fd:
        if waited:
            node.meter.stop()
        meter = FlightMeter(node, flight_id, totals)
        with Crew(0 if small else node.workers, node.open, meter.advance, inherit=(fd,)) as crew:
            if not waited:
                crew.start()
            yield Flight(flight_id, crew, meter, waited)


class FlightMeter:
    """Passes progress on, and keeps the reservation and the file that waiting processes read up to date."""

    def __init__(self, node: Node, flight_id: str, totals: Totals) -> None:
        self._node = node
        self._id = flight_id
        self._totals = totals
        self._lock = threading.Lock()
        self._need = Space()
        self._told = time.monotonic()
        self.bytes = self.files = 0

    def promised(self, need: Space) -> None:
        """The reservation was made; it shrinks as its space is taken."""
        self._need = need

    def advance(self, size: int, files: int) -> None:
        """Counts progress."""
        self._node.meter.advance(size, files)
        with self._lock:
            self.bytes += size
            self.files += files
            now = time.monotonic()
            if now - self._told < TELL_SECONDS:
                return
            self._told = now
        with contextlib.suppress(OSError):  # only a waiting process's display depends on it
            path = self._node.staging / self._id / "progress"
            scratch = path.with_suffix(f".{threading.get_ident()}")
            scratch.write_text(json.dumps([self.bytes, self.files]))
            os.replace(scratch, path)
        left = 1 - min(1.0, self.files / max(1, self._totals.files))
        with self._node.catalog.decide() as decision:
            decision.reserve(Reservation(self._id, self._need.scaled(left)))


class _Shown:
    """What of another process's progress the meter was told already."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._bytes = self._files = 0

    def show(self, told: tuple[int, int]) -> None:
        """Tells the meter what is new."""
        self._node.meter.advance(max(0, told[0] - self._bytes), max(0, told[1] - self._files))
        self._bytes, self._files = max(self._bytes, told[0]), max(self._files, told[1])


def _told(path: Path) -> tuple[int, int]:
    try:
        size, files = json.loads(path.read_text())
    except (OSError, ValueError):
        return 0, 0
    return size, files
