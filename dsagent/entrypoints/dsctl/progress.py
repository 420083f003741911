"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from dsagent.core.progress import Progress
from dsagent.entrypoints.dsctl.render import say
from dsagent.entrypoints.meters import NoMeter, TickingMeter

if TYPE_CHECKING:
    import rich.progress

    from dsagent.service.node import Meter

BAR_SECONDS = 0.1
LINE_SECONDS = 5.0


class ProgressStyle(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    PLAIN = "plain"
    NONE = "none"


def make_meter(style: ProgressStyle, quiet: bool) -> "Meter":
    """The meter that fits the wish and the terminal."""
    if quiet or style is ProgressStyle.NONE:
        return NoMeter()
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if style is ProgressStyle.AUTO and terminal:
        return TickingMeter(_Bar().draw, BAR_SECONDS)
    return TickingMeter(_draw_line, LINE_SECONDS)


def _draw_line(progress: Progress, _final: bool) -> None:
    say(progress.line())


class _Bar:
    """A bar of rich's; rich is loaded when the first one is drawn. It honours NO_COLOR by itself."""

    def __init__(self) -> None:
        self._bar: rich.progress.Progress | None = None

    def draw(self, progress: Progress, final: bool) -> None:
        if self._bar is None:
            self._bar = _open_bar(progress)
        self._bar.update(
            self._bar.task_ids[0],
            completed=progress.fraction or 0.0,
            total=None if progress.fraction is None else 1.0,
            amounts=progress.amounts(),
            pace=progress.pace(),
        )
        self._bar.refresh()
        if final:
            self._bar.stop()
            self._bar = None


def _open_bar(progress: Progress) -> "rich.progress.Progress":
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import BarColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    bar = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[amounts]}", markup=False),
        TextColumn("{task.fields[pace]}", markup=False, style="dim"),
        console=Console(stderr=True),
        auto_refresh=False,
    )
    bar.add_task(f"{progress.verb} {progress.subject}", total=1.0, amounts="", pace="")
    bar.start()
    return bar
