"""The device plugin of a machine with 16 GPUs in one class, beside other devices whole and in GBs: what it takes.

The process looks at sysfs as files, with 600 other functions on the bus, and reports to an API server of its own.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dsagent.core.cluster import CONFIG_MAPS, NODES
from gpu_topology.cluster.client import ApiServer
from gpu_topology.cluster.policies import Policies
from gpu_topology.cluster.report import Place, Report
from gpu_topology.device_plugin.gpus import Gpus, Terms
from gpu_topology.device_plugin.process import Process, serve_until_signal
from gpu_topology.device_plugin.rivals import find_rival, pod_resources
from gpu_topology.device_plugin.shares import Shares
from gpu_topology.recording import load_recording
from gpu_topology.sysfs import Directory, Recorded
from tests.fakes.cluster import MemoryCluster
from tests.machines.build import Built, Card, Gpu, Host, Node, text_of
from tests.machines.descriptions import switch, vfs
from tests.machines.trees import put
from tests.support.api_server import api_server
from tests.support.kubelet import Endpoint, Kubelet
from tools.bench.setting import MEMORY, Setting
from tools.bench.timing import Result, median
from tools.bench.topology import add_others

MINUTE = 60.0
REPEATS = 50
CLASS = "dsagent.io/gpu-roce1"
SUBNET = "10.1.0.0/16"
TICK = os.sysconf("SC_CLK_TCK")


def _half(number: int) -> Host:
    bus = 0x20 + 0x40 * number
    gpus = [Gpu(f"0000:{bus + 4 + place:02x}:00.0", 0x20F1, "NVIDIA A100") for place in range(8)]
    own = vfs(f"0000:{bus + 12:02x}", 10 + 8 * number, 8, f"ens{number}")
    card = Card(f"0000:{bus + 12:02x}:00.0", f"mlx5_{number}", f"ens{number}", subnet=SUBNET, vfs=own)
    root = f"0000:{bus:02x}"
    return Host(f"pci{root}", number, (switch(f"{root}:01.0", f"0000:{bus + 1:02x}", [*gpus, (card,)]),))


MACHINE = Built(
    "sixteen",
    "made up: two sockets, 16 GPUs, 2 RoCE cards of one subnet with 8 virtual functions each",
    (Node(0, 0, "0-31,64-95", 512), Node(1, 1, "32-63,96-127", 512)),
    (_half(0), _half(1)),
)


def device_plugin(setting: Setting) -> Result:
    """CPU and memory of the process while nothing happens but its looks, and what kubelet's questions take."""
    result = Result("device_plugin", "Device plugin: one process, 16 GPUs of one class and two other kinds of devices")
    seconds = MINUTE / 10 if setting.quick else MINUTE
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, _served(Path(folder)) as (pid, sockets):
        gpus = sockets[CLASS]
        with gpus.watching() as watched:
            ids = sorted(watched.next())
            before, begun = _cpu_seconds(pid), time.monotonic()
            time.sleep(seconds)
            used = (_cpu_seconds(pid) - before) / (time.monotonic() - begun)
            preferred = max(_milliseconds(lambda size=size: gpus.prefer(ids, [], size)) for size in range(1, 16))  # type: ignore[misc]
            allocated = _milliseconds(lambda: gpus.allocate(ids[:2]))
        peak = _peak_mb(pid)
        for socket in sockets.values():
            socket.close()
    result.note(f"CPUs of the process over {seconds:.0f} s", used, "CPUs", 0.1)
    result.note("peak memory of the process", peak, "MB", 300)
    result.note("GetPreferredAllocation of 16 GPUs, the slowest of all sizes", preferred, "ms", 50)
    result.note("Allocate of two", allocated, "ms")
    return result


@contextmanager
def _served(folder: Path) -> Iterator[tuple[int, dict[str, Endpoint]]]:
    """The process, and the sockets of its resources; a device of another kind is a file."""
    (folder / "machine").mkdir()
    (folder / "machine" / "machine.json").write_text(text_of(MACHINE))
    sysfs = load_recording(folder / "machine").sysfs
    assert isinstance(sysfs, Recorded)
    add_others(put(sysfs._tree, folder / "sys"))  # noqa: SLF001 - as files
    (folder / "devices.yaml").write_text(
        f"""resources:
  - {{name: example.com/npu, variable: NPU, devices: {{{_others(folder, "npu", "numa_node: 0")}}}}}
  - {{name: example.com/share, unit: GB, variable: SHARE, devices: {{{_others(folder, "share", "memory: 32")}}}}}
"""
    )
    kubelet = Kubelet(folder)
    cluster = MemoryCluster()
    cluster.create(NODES, {"metadata": {"name": "node"}})
    cluster.create(CONFIG_MAPS, {"metadata": {"name": "rails"}, "data": {"1": SUBNET}}, "system")
    kubelet.cpus = list(range(2, 128))
    kubelet.start()
    kubelet.start_pod_resources(dict)
    with api_server(cluster, folder / "account") as (port, _):
        command = [sys.executable, "-m", "tools.bench.plugin", str(folder), str(port)]
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # it says that nothing has a device node
        try:
            found = [kubelet.next_registered() for _ in range(3)]
            yield child.pid, {one.resource_name: Endpoint(kubelet.plugins / one.endpoint) for one in found}
        finally:
            child.terminate()
            child.wait()
            kubelet.stop()


def _others(folder: Path, name: str, field: str) -> str:
    paths = [folder / f"{name}{place}" for place in range(8)]
    for path in paths:
        path.touch()
    return ", ".join(f"{path.name}: {{paths: [{path}], {field}}}" for path in paths)


def _child() -> None:
    """What `gpu-topology serve` is, with subnets and driver of the made machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    plugins = folder / "device-plugins"
    inputs = replace(load_recording(folder / "machine"), sysfs=Directory(folder / "sys"))
    gpus = Gpus(
        lambda: inputs,
        folder / "node.json",
        Terms(folder),
        rival=lambda topology, own: find_rival(plugins, topology, own),
    )
    gpus.numbers = {}
    policies = Policies("single-numa-node", "container", "static")
    place = Place("node", pod_resources(plugins), lambda: policies, "system", "rails")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        api = ApiServer("127.0.0.1", arguments.port, folder / "account")
        report = Report(api, place, gpus, lambda: loop.call_soon_threadsafe(process.wake))
        process = Process(plugins, [gpus, Shares(folder / "devices.yaml")], report)
        with report.written():
            await serve_until_signal(process)

    asyncio.run(run())


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _peak_mb(pid: int) -> float:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6


def _milliseconds(run: Callable[[], object]) -> float:
    """Median of some runs."""
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        run()
        taken.append((time.perf_counter() - begun) * 1000)
    return median(taken)


if __name__ == "__main__":
    _child()
