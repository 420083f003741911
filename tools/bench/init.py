"""The init client: how long it takes to start."""

import resource
import subprocess
import sys

from dsagent.entrypoints.init.zipapp import build
from tools.bench.setting import Setting
from tools.bench.timing import Contender, Result, median, race

ROUNDS = 40
OURS, PYTHON = "dsagent-init --version", "python -c pass"


def init_start(setting: Setting) -> Result:
    """Starts of the zipapp as a pod starts it, beside those of the same Python with nothing to do."""
    result = Result("init_start", "Start of dsagent-init")
    zipapp = setting.build / "dsagent-init.pyz"
    zipapp.write_bytes(build())
    python = [sys.executable, "-I", "-S"]
    cpu: dict[str, list[float]] = {}

    def start(name: str, *arguments: str) -> Contender:
        def run() -> None:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*python, *arguments], check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu.setdefault(name, []).append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

        return Contender(name, run)

    contenders = [start(OURS, str(zipapp), "--version"), start(PYTHON, "-c", "pass")]
    result.seconds = race(contenders, 5 if setting.quick else ROUNDS, lambda _: None)
    result.note(OURS, median(result.seconds[OURS]) * 1000, "ms", 150)
    for name, seconds in cpu.items():
        result.note(f"{name}: CPU time", median(seconds) * 1000, "ms")
    return result
