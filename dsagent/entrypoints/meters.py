"""Counting what a verb has done, and showing it now and then."""

import logging
import threading
from collections.abc import Callable

from dsagent.core.progress import Progress, Stretch

log = logging.getLogger("dsagent")


class NoMeter:
    """Shows nothing."""

    def start(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None:
        """A stretch of work begins."""

    def advance(self, size: int, files: int) -> None:
        """So much was done."""

    def stop(self) -> None:
        """The stretch is over."""


class TickingMeter:
    """Counts, and calls `draw` every `interval` seconds and once at the end of each stretch.

    `draw(progress, final)` runs in a thread of its own, the final time in the caller's.
    """

    def __init__(self, draw: Callable[[Progress, bool], None], interval: float) -> None:
        self._draw = draw
        self._interval = interval
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._stretch = Stretch("", "", 0, 0)

    def start(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None:
        """Ends the stretch before, if there is one, and begins another."""
        self.stop()
        self._stretch = Stretch(verb, subject, total_bytes, total_files)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, args=(self._done,), daemon=True, name="progress")
        self._thread.start()

    def advance(self, size: int, files: int) -> None:
        """Adds to what is done."""
        with self._lock:
            self._stretch.bytes += size
            self._stretch.files += files

    def stop(self) -> None:
        """Shows the end of the stretch; nothing happens if there is none."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._done.set()
        thread.join()
        self._show(final=True)

    def _tick(self, done: threading.Event) -> None:
        while not done.wait(self._interval):
            self._show(final=False)

    def _show(self, final: bool) -> None:
        with self._lock:
            progress = self._stretch.now()
        try:
            self._draw(progress, final)
        except Exception:
            log.warning("progress cannot be shown", exc_info=True)
            self._draw = _draw_nothing


def _draw_nothing(_progress: Progress, _final: bool) -> None: ...
