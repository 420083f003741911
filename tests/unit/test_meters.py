"""Counting and showing what a verb has done."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from dsagent.core.progress import Progress
from dsagent.entrypoints.meters import TickingMeter

NEVER = 3600.0


class Drawn:
    """Keeps what it is told to draw."""

    def __init__(self) -> None:
        self.shown: list[tuple[Progress, bool]] = []

    def draw(self, progress: Progress, final: bool) -> None:
        self.shown.append((progress, final))


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=20))
def test_the_end_of_a_stretch_is_shown_with_all_that_was_done(steps: list[tuple[int, int]]) -> None:
    drawn = Drawn()
    meter = TickingMeter(drawn.draw, NEVER)
    meter.start("cache", "x", 0, 0)
    for size, files in steps:
        meter.advance(size, files)
    meter.stop()
    meter.stop()
    ((progress, final),) = drawn.shown
    assert final
    assert (progress.bytes, progress.files) == (sum(s for s, _ in steps), sum(f for _, f in steps))
    assert progress.fraction is None
    assert progress.remaining is None


def test_steps_from_many_threads_are_all_counted() -> None:
    drawn = Drawn()
    meter = TickingMeter(drawn.draw, 0.001)
    meter.start("cache", "x", 8000, 8000)

    def work() -> None:
        for _ in range(1000):
            meter.advance(1, 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meter.stop()
    assert (drawn.shown[-1][0].bytes, drawn.shown[-1][0].fraction) == (8000, 1.0)
    assert [final for _, final in drawn.shown].count(True) == 1


def test_a_new_stretch_begins_at_nothing() -> None:
    drawn = Drawn()
    meter = TickingMeter(drawn.draw, NEVER)
    meter.start("check", "x", 10, 1)
    meter.advance(10, 1)
    meter.start("cache", "y", 20, 2)
    meter.stop()
    first, second = (progress for progress, _ in drawn.shown)
    assert (first.verb, first.bytes, second.verb, second.bytes) == ("check", 10, "cache", 0)


def test_a_display_that_breaks_is_not_asked_again() -> None:
    asked = []

    def draw(progress: Progress, _final: bool) -> None:
        asked.append(progress)
        raise OSError("no terminal")

    meter = TickingMeter(draw, NEVER)
    for _ in range(3):
        meter.start("cache", "x", 0, 0)
        meter.stop()
    assert len(asked) == 1


def test_the_line_for_people() -> None:
    progress = Progress("cache", "x", 5_000_000, 10, 10_000_000, 40, 1e6, 3.0, 10.0, 5.0)
    assert progress.line() == "cache x: 5.0 MB of 10 MB, 10 of 40 files, 1.0 MB/s, 3 files/s, ETA 10 s"
    assert progress.fraction == 0.5
    unknown = progress._replace(total_bytes=0, total_files=0, remaining=None)
    assert unknown.line() == "cache x: 5.0 MB, 10 files, 1.0 MB/s, 3 files/s"
    assert progress._replace(total_bytes=0).fraction == 0.25
