"""gpu-topology on a machine with 16 GPUs: what discovery takes, a choice of GPUs, and a prediction."""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpu_topology.allocate import Policy, allocate
from gpu_topology.discover import find_topology
from gpu_topology.links import scores
from gpu_topology.predict import (
    Container,
    CpuFacts,
    CpuLayout,
    MemoryZone,
    Node,
    Options,
    PlacedCpu,
    PluginDevice,
    Pod,
    Scope,
    predict,
)
from gpu_topology.predict import Policy as Kubelet
from gpu_topology.recording import load_recording
from gpu_topology.sysfs import Directory
from tests.machines.build import MACHINES
from tests.machines.trees import put, tree_of
from tools.bench.setting import GIB, MEMORY, Setting, command
from tools.bench.timing import Contender, Result, median, race

MACHINE = "dgx-2"
OTHERS = 600  # functions of the PCI bus that are neither GPU nor network card, as a large server has
SHOW = "gpu-topology show"
REPEATS = 20


def topology(setting: Setting) -> Result:
    """Discovery from files, the slowest choice over all policies and sizes, and a prediction for a usual node."""
    result = Result("topology", f"GPU topology of a machine with 16 GPUs and {OTHERS} other PCI functions")
    recorded = load_recording(MACHINES / MACHINE)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root = put(tree_of(MACHINE), Path(folder) / "sys")
        add_others(root)
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
    result.note("predict, two NUMA nodes with 64 CPUs and 8 GPUs", _prediction(), "ms", 0.2)
    result.note("whole command gpu-topology show", median(result.seconds[SHOW]) * 1000, "ms")
    return result


def _prediction() -> float:
    """A Guaranteed pod with CPUs, memory and GPUs for a node where all of kubelet's managers take part."""
    cpus = (PlacedCpu(cpu, numa_node=cpu // 16 % 2, socket=cpu // 16 % 2, core=cpu % 32) for cpu in range(64))
    layout = CpuLayout(tuple(cpus))
    memory = {"memory": 256 * GIB}
    node = Node(
        numa_nodes=(0, 1),
        cpus=CpuFacts(layout, free=layout.everything & ~1, reserved=1),
        memory={number: MemoryZone(memory, memory) for number in (0, 1)},
        devices={"gpu": tuple(PluginDevice((gpu // 4,), is_allocated=gpu in (0, 5)) for gpu in range(8))},
        allocatable={"cpu": 63_000, "memory": 512 * GIB, "pods": 110},
        requested={"cpu": 2_000, "memory": GIB, "pods": 8},
    )
    asked = {"cpu": 8_000, "memory": 64 * GIB, "gpu": 2}
    pod = Pod((Container("main", asked, asked),))
    return _milliseconds(lambda: predict(Kubelet.SINGLE_NUMA_NODE, Options(), Scope.CONTAINER, pod, node))


def add_others(root: Path) -> None:
    """Other functions on the PCI bus of a made sysfs."""
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
