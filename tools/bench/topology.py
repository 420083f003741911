"""gpu-topology on a machine with 16 GPUs: what discovery takes, and a choice of GPUs."""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpu_topology.allocate import Policy, allocate
from gpu_topology.discover import find_topology
from gpu_topology.links import scores
from gpu_topology.recording import load_recording
from gpu_topology.sysfs import Directory
from tests.machines.build import MACHINES
from tests.machines.trees import put, tree_of
from tools.bench.setting import MEMORY, Setting, command
from tools.bench.timing import Contender, Result, median, race

MACHINE = "dgx-2"
OTHERS = 600  # functions of the PCI bus that are neither GPU nor network card, as a large server has
SHOW = "gpu-topology show"
REPEATS = 20


def topology(setting: Setting) -> Result:
    """Discovery from files, and the slowest choice over all policies and sizes."""
    result = Result("topology", f"GPU topology of a machine with 16 GPUs and {OTHERS} other PCI functions")
    recorded = load_recording(MACHINES / MACHINE)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root = put(tree_of(MACHINE), Path(folder) / "sys")
        _add_others(root)
        live = replace(recorded, sysfs=Directory(root))
        found, _ = find_topology(live)
        discovery = _milliseconds(lambda: find_topology(live))
        show = [sys.executable, "-m", "gpu_topology.command", "show", "-o", "json", "--sysfs-root", str(root)]
        result.seconds = race([Contender(SHOW, lambda: command(*show))], setting.rounds, setting.say)
    gpus = tuple(found.links)
    pairs = scores(found.links, gpus)
    rails = {gpu: str(place // 2) for place, gpu in enumerate(gpus)}
    slowest = max(
        _milliseconds(lambda policy=policy, size=size: allocate(gpus, (), size, policy, pairs, rails))  # type: ignore[misc]
        for policy in Policy
        for size in range(1, len(gpus))
    )
    result.note("discovery inside the process", discovery, "ms", 100)
    result.note("allocate, the slowest of all policies and sizes", slowest, "ms", 5)
    result.note("whole command gpu-topology show", median(result.seconds[SHOW]) * 1000, "ms")
    return result


def _add_others(root: Path) -> None:
    for number in range(OTHERS):
        pci = f"0001:{number // 32:02x}:{number % 32:02x}.0"
        folder = root / "devices" / "pci0001:00" / pci
        folder.mkdir(parents=True)
        (folder / "class").write_text("0x088000\n")
        (root / "bus/pci/devices" / pci).symlink_to(f"../../../devices/pci0001:00/{pci}")


def _milliseconds(run: Callable[[], object]) -> float:
    """Median of some runs."""
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        run()
        taken.append((time.perf_counter() - begun) * 1000)
    return median(taken)
