"""NUMA nodes and CPUs, from devices/system."""

import re

from gpu_topology.api import UNKNOWN_NODE, Cpu, NumaNode
from gpu_topology.sysfs import Sysfs, cpu_list, number

_NODES = "devices/system/node"
_CPUS = "devices/system/cpu"


def read_numa_nodes(sysfs: Sysfs) -> tuple[NumaNode, ...]:
    """All NUMA nodes by number; a kernel without NUMA shows none."""
    numbers = sorted(
        int(name[4:]) for name in sysfs.names(_NODES, "node") if re.fullmatch(r"node\d{1,5}", name, re.ASCII)
    )
    return tuple(_numa_node(sysfs, node, numbers) for node in numbers)


def _numa_node(sysfs: Sysfs, node: int, numbers: list[int]) -> NumaNode:
    folder = f"{_NODES}/node{node}"
    total = re.search(r"MemTotal:\s*(\d{1,15}) kB", sysfs.text(f"{folder}/meminfo") or "", re.ASCII)
    distances = [number(word) for word in (sysfs.text(f"{folder}/distance") or "").split()]
    return NumaNode(
        id=node,
        cpus=cpu_list(sysfs.text(f"{folder}/cpulist")),
        memory=int(total[1]) * 1024 if total else 0,
        # The kernel writes one distance for each node that is online, in their order.
        distances=dict(zip(numbers, distances, strict=True)) if len(numbers) == len(distances) else {},
    )


def read_cpus(sysfs: Sysfs, numa_nodes: tuple[NumaNode, ...]) -> tuple[Cpu, ...]:
    """The CPUs that are online, by number."""
    node_of = {cpu: node.id for node in numa_nodes for cpu in node.cpus}
    online = cpu_list(sysfs.text(f"{_CPUS}/online")) or tuple(sorted(node_of))
    return tuple(
        Cpu(
            id=cpu,
            numa_node=node_of.get(cpu, UNKNOWN_NODE),
            package=number(sysfs.text(f"{_CPUS}/cpu{cpu}/topology/physical_package_id")),
            core=number(sysfs.text(f"{_CPUS}/cpu{cpu}/topology/core_id")),
        )
        for cpu in online
    )
