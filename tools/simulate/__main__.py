"""python -m tools.simulate [--trace FILE] [--jobs N] [--seed N]: replays, a table, and docs/img/simulation.svg."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tools.bench.draw import Bar, Panel, picture
from tools.simulate.outcome import Outcome
from tools.simulate.replay import Replay, Shape
from tools.simulate.strategies import strategies
from tools.simulate.workload import drawn, read

REPOSITORY = Path(__file__).parents[2]
HEADER = (
    "| | from the source | waiting for data, mean | 95 % | GPU-hours held meanwhile | waiting for GPUs, mean | "
    "job time, mean | free GPUs on broken rails |"
)


def main() -> int:
    """Replay by every strategy."""
    parser = argparse.ArgumentParser(prog="python -m tools.simulate", description=__doc__)
    parser.add_argument("--trace", type=Path, help="tasks in the form of Alibaba's cluster-trace-gpu-v2023")
    parser.add_argument(
        "--jobs", type=int, default=2000, help="jobs that are drawn, or taken from the end of the trace (2000)"
    )
    parser.add_argument("--datasets", type=int, default=300)
    parser.add_argument("--zipf", type=float, default=1.0, help="exponent of the datasets' popularity (1.0)")
    parser.add_argument("--load", type=float, default=0.7, help="part of the GPUs that jobs keep busy (0.7)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shape = Shape()
    rest = (arguments.jobs, arguments.datasets, arguments.zipf, shape.gpus, arguments.load, arguments.seed)
    workload = read(arguments.trace, *rest) if arguments.trace else drawn(*rest)
    outcomes: list[Outcome] = []
    for strategy in strategies():
        begun = time.perf_counter()
        outcomes.append(Replay(workload, shape, strategy, arguments.seed).run())
        print(f"{strategy.name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    name = arguments.trace.stem if arguments.trace else "drawn"
    build = REPOSITORY / "build" / "simulate"
    build.mkdir(parents=True, exist_ok=True)
    (build / f"{name}.json").write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n")
    print(table(outcomes))
    if not arguments.trace:
        (REPOSITORY / "docs" / "img" / "simulation.svg").write_text(draw(outcomes))
    return 0


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown, a row a strategy."""
    rows = [
        f"| {one.strategy} | {one.source_bytes / 1e12:,.0f} TB | {one.data:,.0f} s | {one.data_p95:,.0f} s | "
        f"{one.waited:,.0f} | {one.queue:,.0f} s | {one.time:,.0f} s | {one.broken:.0%} |"
        for one in outcomes
    ]
    return "\n".join([HEADER, "|---|--:|--:|--:|--:|--:|--:|--:|", *rows])


def draw(outcomes: Sequence[Outcome]) -> str:
    """The picture of docs/simulation.md."""
    panels = [
        Panel(
            "From the source", "shorter is better", "TB", _bars(outcomes, [one.source_bytes / 1e12 for one in outcomes])
        ),
        Panel(
            "Waiting for data",
            "mean of all jobs, shorter is better",
            "s",
            _bars(outcomes, [one.data for one in outcomes]),
        ),
        Panel(
            "Free GPUs on rails of which others are in use",
            "of all free GPUs, over time; shorter is better",
            "%",
            _bars(outcomes, [100 * one.broken for one in outcomes]),
        ),
        Panel(
            "Job time",
            "mean from arrival to end, shorter is better",
            "s",
            _bars(outcomes, [one.time for one in outcomes]),
        ),
    ]
    return picture(panels)


def _bars(outcomes: Sequence[Outcome], values: Sequence[float]) -> list[Bar]:
    return [
        Bar(one.strategy, value, one.strategy.startswith(("exact", "expected")))
        for one, value in zip(outcomes, values, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
