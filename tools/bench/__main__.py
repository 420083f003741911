"""python -m tools.bench [--quick] [--rounds N] [CASE...]: run cases, print tables, keep numbers, draw."""

import argparse
import compileall
import os
import signal
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from tools.bench import report
from tools.bench.agent import agent_cache, agent_crowd, agent_four, agent_hits
from tools.bench.extender import extender
from tools.bench.init import init_start
from tools.bench.latency import s3, sshfs
from tools.bench.loader import loader
from tools.bench.local import cache, pack
from tools.bench.memory import memory
from tools.bench.million import hit, scan
from tools.bench.plugin import device_plugin
from tools.bench.scheduler import scheduler
from tools.bench.setting import Setting
from tools.bench.timing import Result
from tools.bench.topology import topology
from tools.bench.trees import compile_native
from tools.bench.update import update

AGENT = (agent_hits, agent_cache, agent_four, agent_crowd, init_start)
CASES: dict[str, Callable[[Setting], Result]] = {
    case.__name__: case
    for case in (
        *(cache, pack, scan, hit, update, memory, sshfs, s3, loader, *AGENT),
        *(topology, extender, device_plugin, scheduler),
    )
}
REPOSITORY = Path(__file__).parents[2]
CPUS = 2


def main() -> int:
    """Run the cases that were asked for, or all; a bar that is missed is no failure."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="a tenth of the files, two rounds; draws nothing")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contender (5)")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if os.geteuid():
        parser.error("the bench mounts filesystems of its own: run it as root")

    # Ended from outside, it still unmounts and ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    build = REPOSITORY / "build" / "bench"
    build.mkdir(parents=True, exist_ok=True)
    # As pip does when it installs: the environment may forbid Python to keep what it compiles, and then each process
    # compiles all of its modules again.
    for folder in (REPOSITORY / "dsagent", sysconfig.get_path("purelib")):
        compileall.compile_dir(folder, quiet=2, workers=CPUS)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])
    rounds = 2 if arguments.quick else arguments.rounds
    setting = Setting(build, compile_native(build), arguments.quick, rounds)
    numbers = build / ("quick.json" if arguments.quick else "results.json")
    for name in arguments.cases or CASES:
        setting.say(f"{name} …")
        result = CASES[name](setting)
        cases = report.keep(result, numbers)
        print(report.show(result), flush=True)
        if not arguments.quick:
            image = REPOSITORY / "docs" / "img" / "bench.svg"
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_text(report.draw(cases))
            (build / "table.md").write_text(report.table(cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
