"""What of a node's devices, CPUs and memory containers have, as kubelet's PodResources service says it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_topology.device_plugin import kubelet_pb2 as messages
from gpu_topology.device_plugin.rpc import handed_out

_MEMORY = "memory"  # beside sizes of huge pages


@dataclass(frozen=True)
class Usage:
    """`cpus` are those that containers may have for themselves, `free_cpus` what is left of them; `free_memory`, by
    NUMA node in bytes, what the Static memory manager has left, nothing without it.
    """

    allocated: Mapping[str, frozenset[str]]  # ids by resource
    cpus: frozenset[int]
    free_cpus: frozenset[int]
    free_memory: Mapping[int, int]


def read_usage(pod_resources: Path) -> Usage:
    """Asks kubelet. Raises OSError."""
    return usage_of(*handed_out(pod_resources))


def usage_of(can: messages.AllocatableResources, pods: messages.ListPodResources) -> Usage:
    """What the two answers say."""
    containers = [container for pod in pods.pods for container in pod.containers]
    allocated: dict[str, set[str]] = {}
    free = {node.id: one.size for one in can.memory if one.memory_type == _MEMORY for node in one.topology.nodes}
    for container in containers:
        for device in container.devices:
            allocated.setdefault(device.resource_name, set()).update(device.device_ids)
        for block in container.memory:
            if block.memory_type == _MEMORY:
                _take(free, [node.id for node in block.topology.nodes], block.size)
    cpus = frozenset(can.cpu_ids)
    return Usage(
        {name: frozenset(ids) for name, ids in allocated.items()},
        cpus,
        cpus.difference(*(container.cpu_ids for container in containers)),
        free,
    )


def _take(free: dict[int, int], nodes: list[int], size: int) -> None:
    """As the memory manager does: as much from each node of the group as it has."""
    for node in nodes:
        taken = min(size, free.get(node, 0))
        free[node] = free.get(node, 0) - taken
        size -= taken
