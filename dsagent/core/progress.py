"""How far a piece of work is, at what rate, and how long it still takes."""

import time
from collections import deque
from typing import NamedTuple

from dsagent.core.quantities import human_count, human_duration, human_size

RATE_SECONDS = 15.0  # how far back the rate looks: old enough to be calm, young enough to be true


class Progress(NamedTuple):
    """How far a verb is. Totals of 0 are unknown; rates are per second; `remaining` is in seconds, None if unknown."""

    verb: str
    subject: str
    bytes: int
    files: int
    total_bytes: int
    total_files: int
    byte_rate: float
    file_rate: float
    remaining: float | None
    seconds: float

    @property
    def fraction(self) -> float | None:
        """The part that is done, 0 to 1, or None if the total is unknown."""
        for done, total in ((self.bytes, self.total_bytes), (self.files, self.total_files)):
            if total:
                return min(1.0, done / total)
        return None

    def amounts(self) -> str:
        """Bytes and files done, for people."""
        size, files = human_size(self.bytes), human_count(self.files)
        if self.total_bytes:
            size += f" of {human_size(self.total_bytes)}"
        if self.total_files:
            files += f" of {human_count(self.total_files)}"
        return f"{size}, {files} files"

    def pace(self) -> str:
        """Rates and the time that remains, for people."""
        left = "" if self.remaining is None else f", ETA {human_duration(self.remaining)}"
        return f"{human_size(self.byte_rate)}/s, {human_count(round(self.file_rate))} files/s{left}"

    def line(self) -> str:
        """All of it in one line."""
        return f"{self.verb} {self.subject}: {self.amounts()}, {self.pace()}"


class Stretch:
    """What was counted since a start, with samples for the rate."""

    def __init__(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None:
        self.bytes = self.files = 0
        self._names = (verb, subject)
        self._totals = (total_bytes, total_files)
        self._started = time.monotonic()
        self._samples = deque([(self._started, 0, 0)])

    def now(self) -> Progress:
        """Where it stands."""
        now = time.monotonic()
        self._samples.append((now, self.bytes, self.files))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()
        then, size, files = self._samples[0]
        span = max(now - then, 1e-6)
        byte_rate, file_rate = (self.bytes - size) / span, (self.files - files) / span
        return Progress(
            *self._names,
            self.bytes,
            self.files,
            *self._totals,
            byte_rate,
            file_rate,
            self._remaining(byte_rate, file_rate),
            now - self._started,
        )

    def _remaining(self, byte_rate: float, file_rate: float) -> float | None:
        """The longer of the two: many small files may be left where few bytes are."""
        left = [
            max(0, total - done) / rate
            for total, done, rate in zip(self._totals, (self.bytes, self.files), (byte_rate, file_rate), strict=True)
            if total and rate > 0
        ]
        return max(left, default=None)
