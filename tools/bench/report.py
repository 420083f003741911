"""What the bench leaves behind: a table for the reader, raw numbers as JSON, and the picture."""

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.bench.draw import Bar, Panel, picture
from tools.bench.timing import Result, median

# Raw numbers of a case, by its name, as they lie in the file.
Cases = dict[str, dict[str, Any]]


def show(result: Result) -> str:
    """A case's table: figure, unit, bar and verdict a line, then the medians it is made of."""
    lines = [f"\n{result.title}"]
    for line in result.lines:
        bar = "" if line.bar is None else f"{'at most' if line.at_most else 'at least'} {line.bar:g} {line.unit}"
        lines.append(f"  {line.text:<58} {_figure(line.value):>10} {line.unit:<3} {bar:<16} {line.verdict}".rstrip())
    for name, seconds in result.seconds.items():
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        lines.append(f"    {name:<56} {median(seconds):>10.2f} s   of {len(seconds)}: {spread}")
    return "\n".join(lines)


def keep(result: Result, file: Path) -> Cases:
    """Put a case's numbers into the file, beside those of other cases; all of them."""
    cases: Cases = json.loads(file.read_text()) if file.exists() else {}
    lines = [{**asdict(line), "verdict": line.verdict} for line in result.lines]
    facts = {"title": result.title, "lines": lines, "seconds": result.seconds, "machine": machine()}
    cases[result.case] = facts
    file.write_text(json.dumps(cases, indent=1) + "\n")
    return cases


def table(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """All cases as Markdown tables, as docs/benchmarks.md has them."""
    parts: list[str] = []
    for case in cases.values():
        parts += [f"### {case['title']}", "", "| | figure | bar | |", "|---|--:|--:|---|"]
        for line in case["lines"]:
            bar = (
                ""
                if line["bar"] is None
                else f"{'at most' if line['at_most'] else 'at least'} {line['bar']:g} {line['unit']}"
            )
            figure = f"{_figure(line['value'])} {line['unit']}"
            parts.append(f"| {_cell(line['text'])} | {figure} | {bar} | {line['verdict']} |")
        parts += ["", "| | median | all |", "|---|--:|--:|"]
        for name, seconds in case["seconds"].items():
            spread = f"{min(seconds):.2f}-{max(seconds):.2f} ({len(seconds)})"
            parts.append(f"| {_cell(name)} | {median(seconds):.2f} s | {spread} |")
        facts = case["machine"]
        parts += ["", f"Measured {facts['time']}, kernel {facts['kernel']}, Python {facts['python']}.", ""]
    return "\n".join(parts)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def machine() -> dict[str, str]:
    """What the numbers were made on, and when."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def draw(cases: Mapping[str, Mapping[str, Any]]) -> str:
    """The picture of those cases that were run."""
    notes = {
        "cache": "store, target and the others' source on one ext4; seconds, shorter is better",
        "sshfs": "sshfs behind a proxy that delays every answer; seconds, shorter is better",
        "s3": "an S3 gateway behind the same proxy; seconds, shorter is better",
    }
    panels = [_seconds(cases[name], note) for name, note in notes.items() if name in cases]
    if "loader" in cases:
        panels += _loader(cases["loader"])
    return picture(panels)


def _seconds(case: Mapping[str, Any], note: str) -> Panel:
    medians = {name: median(seconds) for name, seconds in case["seconds"].items()}
    bars = [Bar(name, medians[name], name.startswith("dsctl")) for name in sorted(medians, key=medians.__getitem__)]
    return Panel(case["title"], note, "s", bars)


def _loader(case: Mapping[str, Any]) -> list[Panel]:
    epoch = "one shuffled epoch; images a second, longer is better"
    first = "seconds from the moment the job wants its data until its first batch, shorter is better"
    return [
        Panel(case["title"], epoch, "/s", _bars(case, ": images a second", longest_first=True)),
        Panel("The same loader's first batch", first, "s", _bars(case, ": until the first batch")),
    ]


def _bars(case: Mapping[str, Any], ending: str, *, longest_first: bool = False) -> list[Bar]:
    values = {line["text"].removesuffix(ending): line["value"] for line in case["lines"] if ending in line["text"]}
    bars = []
    for name in sorted(values, key=values.__getitem__, reverse=longest_first):
        short = name.replace("dsctl cache from", "cache from").replace(", then cached path", " + epoch")
        bars.append(Bar(short, values[name], "cache" in name))
    return bars
