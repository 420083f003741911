"""The status of a NodeTopology, as the API takes it, from what is known of the node. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from gpu_topology.api import Cpu, Machine, NumaNode, Rail, Topology
from gpu_topology.cluster.policies import Policies
from gpu_topology.cluster.usage import Usage
from gpu_topology.device_plugin.gpus import GpuClass
from gpu_topology.device_plugin.resource import Resource

MOST_DEVICES = 1024  # that the API takes; a resource that does not fit is left out whole, and so is unknown

Document = dict[str, Any]


def status_of(
    topology: Topology, resources: Sequence[Resource], usage: Usage | None, policies: Policies | None
) -> Document:
    """All but conditions. Without `usage` nothing can be foretold, and then kubelet's policies are not said either."""
    devices = _devices(topology, resources, usage)
    free = [one for one in devices if one["healthy"] and not one["allocated"]]
    known = usage is not None and policies is not None
    return {
        **({"kubelet": _kubelet(topology.machine, usage, policies)} if known else {}),  # type: ignore[arg-type]
        "zones": [_zone(node, topology.machine, usage) for node in _numa_nodes(topology.machine)],
        "rails": [_rail(rail) for rail in topology.rails],
        "devices": devices,
        "deviceCount": len(devices),
        "freeCount": len(free),
    }


def cpu_text(cpus: Iterable[int]) -> str:
    """Numbers as 0-3,8."""
    runs = groupby(enumerate(sorted(cpus)), key=lambda item: item[1] - item[0])
    ends = [(run[0][1], run[-1][1]) for _, group in runs for run in [list(group)]]
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)


def _kubelet(machine: Machine, usage: Usage, policies: Policies) -> Document:
    everything = {cpu.id for cpu in machine.cpus}
    return {
        "topologyManager": policies.topology_manager,
        "scope": policies.scope,
        "topologyManagerOptions": dict(policies.topology_manager_options),
        "cpuManager": policies.cpu_manager,
        "cpuManagerOptions": dict(policies.cpu_manager_options),
        "reservedCpus": cpu_text(everything - usage.cpus) if policies.cpu_manager == "static" else "",
        "memoryManager": policies.memory_manager,
    }


def _numa_nodes(machine: Machine) -> Sequence[NumaNode]:
    """As kubelet sees them: one where the kernel has none."""
    return machine.numa_nodes or (NumaNode(0, tuple(cpu.id for cpu in machine.cpus), 0, {}),)


def _zone(node: NumaNode, machine: Machine, usage: Usage | None) -> Document:
    own = [cpu for cpu in machine.cpus if cpu.id in node.cpus]
    sockets = {cpu.package for cpu in own}
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in own:
        cores.setdefault(_core(cpu), []).append(cpu.id)
    free = usage.free_cpus if usage else frozenset[int]()
    return {
        "id": node.id,
        "socket": sockets.pop() if len(sockets) == 1 else -1,
        "cpus": cpu_text(cpu.id for cpu in own),
        "freeCpus": cpu_text(cpu.id for cpu in own if cpu.id in free),
        "cores": [cpu_text(core) for core in cores.values()],
        "memory": node.memory,
        "freeMemory": usage.free_memory.get(node.id, node.memory) if usage else node.memory,
        "distances": {str(other): far for other, far in node.distances.items()},
    }


def _core(cpu: Cpu) -> tuple[int, int]:
    """The same for threads of one core; a CPU whose core is unknown is one."""
    return (cpu.package, cpu.core) if cpu.core >= 0 else (-1, -cpu.id - 1)


def _rail(rail: Rail) -> Document:
    number = {} if rail.number is None else {"number": rail.number}
    return {"subnet": rail.subnet, "resource": rail.resource, "nics": [nic.name for nic in rail.nics], **number}


def _devices(topology: Topology, resources: Sequence[Resource], usage: Usage | None) -> list[Document]:
    gpus = {
        one: device.gpu.id
        for resource in resources
        if isinstance(resource, GpuClass)
        for one, device in resource.devices.items()
    }
    found: list[Document] = []
    for resource in sorted(resources, key=lambda one: (len(one.offers), one.name)):
        if len(found) + len(resource.offers) > MOST_DEVICES:
            continue
        allocated = usage.allocated.get(resource.name, frozenset()) if usage else frozenset[str]()
        found += [
            {
                "id": offer.id,
                "resource": resource.name,
                "numaNode": offer.numa_node,
                "healthy": offer.healthy,
                "allocated": offer.id in allocated,
                "scores": _scores(topology, gpus, offer.id),
            }
            for offer in resource.offers
        ]
    return sorted(found, key=lambda one: (one["resource"], one["id"]))


def _scores(topology: Topology, gpus: Mapping[str, str], device: str) -> dict[str, int]:
    """How near each other GPU's device is; those that are gone have no links."""
    links = topology.links.get(gpus.get(device, ""), {})
    return {other: links[gpu].score for other, gpu in sorted(gpus.items()) if other != device and gpu in links}
