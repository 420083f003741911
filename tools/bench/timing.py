"""Runs that take turns, their medians, and the lines made of them."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Contender:
    """One of those that are compared: only `run` is timed."""

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] = nothing
    clean: Callable[[], object] = nothing


@dataclass(frozen=True)
class Line:
    """One figure beside its bar; without a bar it is only told."""

    text: str
    value: float
    unit: str
    bar: float | None = None
    at_most: bool = True

    @property
    def verdict(self) -> str:
        """PASS, MISS, or nothing where there is no bar."""
        if self.bar is None:
            return ""
        good = self.value <= self.bar if self.at_most else self.value >= self.bar
        return "PASS" if good else "MISS"


@dataclass
class Result:
    """What a case found: lines for the reader, raw seconds a contender for the file and the picture."""

    case: str
    title: str
    lines: list[Line] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, ours: str, other: str, bar: float | None = None, at_most: bool = True) -> None:
        """Add the line "ours takes so many times the seconds of other"."""
        value = median(self.seconds[ours]) / median(self.seconds[other])
        self.lines.append(Line(f"{ours} / {other}", value, "x", bar, at_most))

    def speedup(self, ours: str, other: str, bar: float) -> None:
        """Add the line "ours is so many times as fast as other"."""
        value = median(self.seconds[other]) / median(self.seconds[ours])
        self.lines.append(Line(f"{ours} is faster than {other} by", value, "x", bar, at_most=False))

    def note(self, text: str, value: float, unit: str, bar: float | None = None) -> None:
        """Add a figure that is not a ratio of times."""
        self.lines.append(Line(text, value, unit, bar))


def median(values: Sequence[float]) -> float:
    """Median of the runs."""
    return statistics.median(values)


def race(contenders: Sequence[Contender], rounds: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Run every contender once a round, each round beginning with another; seconds by name."""
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for turn in range(rounds):
        first = turn % len(contenders)
        for contender in [*contenders[first:], *contenders[:first]]:
            contender.prepare()
            begun = time.perf_counter()
            contender.run()
            seconds[contender.name].append(time.perf_counter() - begun)
            contender.clean()
            say(f"  round {turn + 1}: {contender.name} {seconds[contender.name][-1]:.2f} s")
    return seconds
