"""What the client says: a line a dataset now and then, and what came of it."""

import sys
import time

from dsagent.entrypoints.init.answers import Part, Task
from dsagent.entrypoints.init.quantities import human_duration, human_size

RUNNING_SECONDS = 5.0
WAITING_SECONDS = 60.0


def say(line: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Report:
    """Shows each dataset when its state changes, while it comes every few seconds, and while it waits each minute."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, float]] = {}

    def show(self, task: Task) -> None:
        """Shows what is due; datasets of which the same is to be said share a line."""
        now = time.monotonic()
        lines: dict[str, list[str]] = {}
        for part in task.datasets.values():
            key = part.state + (part.error.detail if part.error else "")
            last, then = self._last.get(part.name, ("", 0.0))
            pause = {"running": RUNNING_SECONDS, "pending": WAITING_SECONDS}.get(part.state)
            if key != last or (pause is not None and now - then >= pause):
                self._last[part.name] = key, now
                lines.setdefault(_line(part), []).append(part.name)
        for line, names in lines.items():
            say(f"{', '.join(names)}: {line}")


def _line(part: Part) -> str:
    if part.state == "ready":
        return f"ready: {came(part)}"
    if part.state == "failed":
        return f"failed: {part.error.detail if part.error else 'the agent does not say why'}"
    if part.state == "pending":
        return f"waiting: {part.error.detail}" if part.error else "waiting for its turn"
    if not part.bytes_total and not part.files_total:
        return "running"
    done, total = (part.bytes_done, part.bytes_total) if part.bytes_total else (part.files_done, part.files_total)
    pace = f", {human_size(part.rate)}/s" if part.rate else ""
    pace += "" if part.eta_seconds is None else f", ETA {human_duration(part.eta_seconds)}"
    return (
        f"{min(100, 100 * done // total)} %, {human_size(part.bytes_done)} of {human_size(part.bytes_total)}, "
        f"{part.files_done:,} of {part.files_total:,} files{pace}"
    )


def came(part: Part) -> str:
    """How a dataset that is ready came here."""
    files = f"{part.files:,} files"
    if part.outcome == "hit":
        text = f"hit, {human_size(part.bytes)} in {files}"
    elif part.outcome == "updated":
        text = f"updated, {human_size(part.fetched_bytes)} fetched, {part.reused_files:,} of {files} kept"
    else:
        text = f"fetched, {human_size(part.fetched_bytes)} for {human_size(part.bytes)} in {files}"
    text += f", {human_duration(part.seconds)}"
    if part.skipped_special:
        text += f", {part.skipped_special:,} special entries left out"
    if part.evicted:
        text += f", {part.evicted} evicted for it"
    return text
