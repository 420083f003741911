"""A recorded machine behind the real device plugin, on a node whose kubelet sees two NUMA nodes."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.nodes import NodeInside
from tests.machines.build import MACHINES
from tools.cluster import numa
from tools.cluster.chart import NAMESPACE, install_chart
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster
from tools.cluster.node import await_ready
from tools.cluster.rooms import wait_until

FIRST, SECOND, NPU = "dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2", "example.com/npu"
FOLDER = "/var/lib/gpu-topology"
_NODES = Path("/sys/devices/system/node")
_CPUS = Path("/sys/devices/system/cpu")


class NumaNode(NodeInside):
    """A node whose kubelet can be given another configuration."""

    def configure(self, **changes: object) -> None:
        """Restart kubelet with other settings."""
        path = self.room.directory / "kubelet.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        self.restart_kubelet()
        await_ready(self.cluster, self.cluster.node(self.number))

    @contextmanager
    def two_numa_nodes(self) -> Iterator[None]:
        """As long as the block lasts kubelet sees two, and its policy is single-numa-node."""
        path = self.room.directory / "kubelet.json"
        before = path.read_text()
        is_ours = self.room.run("test", "-e", str(_NODES / "node1"), check=False).returncode != 0
        numa.show_two_nodes(self.room)
        self.configure(topologyManagerPolicy="single-numa-node")
        try:
            yield
        finally:
            if is_ours:
                self.room.run("umount", str(_NODES))
            path.write_text(before)
            self.configure()

    def put_machine(self, name: str) -> None:
        """The recorded machine's devices, with the CPUs that kubelet sees, and devices of another kind."""
        folder = self.room.directory / FOLDER.lstrip("/")
        (folder / "machine").mkdir(parents=True, exist_ok=True)
        machine = json.loads((MACHINES / name / "machine.json").read_text())
        machine["sysfs"]["devices"]["system"] = _system(self.room.directory / "numa")
        (folder / "machine" / "machine.json").write_text(json.dumps(machine))
        npus = {f"npu{number}": {"paths": ["/dev/null"], "numa_node": number // 4} for number in range(8)}
        devices = [{"name": NPU, "variable": "NPU_VISIBLE_DEVICES", "devices": npus}]
        (folder / "devices.yaml").write_text(json.dumps({"resources": devices}))


def _system(nodes: Path) -> Mapping[str, object]:
    """devices/system as recordings have it: the node's own NUMA nodes, and the machine's CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    return {
        "node": {
            f"node{number}": {
                file: (nodes / f"node{number}" / file).read_text().strip()
                for file in ("cpulist", "distance", "meminfo")
            }
            for number in (0, 1)
        },
        "cpu": {
            "online": ",".join(map(str, cpus)),
            **{
                f"cpu{cpu}": {
                    "topology": {
                        file: (_CPUS / f"cpu{cpu}" / "topology" / file).read_text().strip()
                        for file in ("physical_package_id", "core_id")
                    }
                }
                for cpu in cpus
            },
        },
    }


@contextmanager
def plugin_of(node: NumaNode, machine: str) -> Iterator[None]:
    """The chart's device plugin on this node alone, as long as the block lasts."""
    node.put_machine(machine)
    settings = {
        "topology.enabled": "true",
        "topology.nodeSelector.kubernetes\\.io/hostname": node.name,
        "topology.settings.GPU_TOPOLOGY_FROM": f"{FOLDER}/machine",
        "topology.settings.GPU_TOPOLOGY_DEVICES": f"{FOLDER}/devices.yaml",
    }
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    install_chart(node.cluster, *options)
    try:
        wait_until(
            lambda: all(allocatable(node).get(name) for name in (FIRST, SECOND, NPU)), "resources of the node", 90
        )
        yield
    finally:
        install_chart(node.cluster)


def allocatable(node: NumaNode) -> Mapping[str, int]:
    """How many of each extended resource kubelet can hand out."""
    found: Mapping[str, str] = _json(node.cluster, "get", "node", node.name)["status"]["allocatable"]
    return {name: int(amount) for name, amount in found.items() if "/" in name}


def plugin_pod(node: NumaNode) -> Any:
    """The plugin's pod on the node."""
    selector = "--selector=app.kubernetes.io/component=topology"
    (found,) = _json(node.cluster, "get", "pods", f"--namespace={NAMESPACE}", selector)["items"]
    return found


def registrations(node: NumaNode) -> int:
    """How many resources the plugin has registered since its start. What the API server says of a node's resources
    stays for a while what it was before kubelet's restart.
    """
    return plugin_log(node).count("registered ")


def plugin_log(node: NumaNode) -> str:
    """What the plugin has said; nothing while its kubelet starts, which is asked for it."""
    name = plugin_pod(node)["metadata"]["name"]
    return kubectl(node.cluster, "logs", name, f"--namespace={NAMESPACE}", check=False).stdout


def _json(cluster: Cluster, *arguments: str) -> Any:
    return json.loads(kubectl(cluster, *arguments, "--output=json").stdout)
