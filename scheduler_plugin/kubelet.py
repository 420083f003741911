"""What a node's kubelet would say of a pod, from the facts here and gpu_topology's prediction."""

from collections.abc import Hashable, Iterable

from gpu_topology.predict import (
    UNKNOWN,
    Container,
    CpuFacts,
    CpuLayout,
    Node,
    Options,
    PlacedCpu,
    PluginDevice,
    Pod,
    Policy,
    Scope,
    Verdict,
    predict,
)
from scheduler_plugin import facts
from scheduler_plugin.facts import NodeFacts, PodFacts, Policies, Topology

UNTOLD = Verdict(UNKNOWN, "nothing is known of this node's NUMA nodes and kubelet's policies")
MEMORY_UNKNOWN = "NodeTopology does not say what the memory manager has handed out"
BOUND_UNKNOWN = "pods that are bound to the node have not got theirs yet"
SOCKETS_UNKNOWN = "NodeTopology does not say which socket a NUMA node is on"


def situation(node: NodeFacts) -> Hashable:
    """All of a node that a verdict depends on: nodes where it is equal get the same one. None: nothing is known."""
    topology = node.topology
    if topology is None or topology.policies is None:
        return None
    devices = tuple((one.resource, one.numa_node, one.healthy, one.allocated) for one in topology.devices)
    return topology.policies, topology.zones, devices, tuple(sorted(node.requested.items()))


def shape(pod: PodFacts) -> Hashable:
    """All of a pod that a verdict depends on."""
    return tuple(
        (one.name, tuple(sorted(one.requests.items())), tuple(sorted(one.limits.items())), one.is_sidecar)
        for one in (*pod.init_containers, *pod.containers)
    ), len(pod.containers)


def verdict(pod: PodFacts, node: NodeFacts) -> Verdict:
    """What kubelet would say; unknown where the facts are not enough for that."""
    topology = node.topology
    if topology is None or topology.policies is None:
        return UNTOLD
    policies = topology.policies
    options = dict(policies.topology_options)
    return predict(
        Policy(policies.topology),
        Options(
            options.get("prefer-closest-numa-nodes") == "true",
            int(options.get("max-allowable-numa-nodes", "8")),
        ),
        Scope(policies.scope),
        Pod(_containers(pod.containers), _containers(pod.init_containers)),
        _node(pod, node, topology, policies),
    )


def _containers(containers: tuple[facts.Container, ...]) -> tuple[Container, ...]:
    return tuple(Container(one.name, one.requests, one.limits, one.is_sidecar) for one in containers)


def _node(pod: PodFacts, node: NodeFacts, topology: Topology, policies: Policies) -> Node:
    pools: dict[str, list[PluginDevice]] = {}
    for one in topology.devices:
        where = None if one.numa_node < 0 else (one.numa_node,)
        pools.setdefault(one.resource, []).append(PluginDevice(where, one.healthy, one.allocated))
    unknown = {name: "NodeTopology does not have it" for name in pod.devices if name not in pools}
    for name, pool in pools.items():
        if node.requested.get(name, 0) > sum(one.is_allocated for one in pool):
            unknown[name] = BOUND_UNKNOWN
    if policies.memory == "Static":
        unknown["memory"] = MEMORY_UNKNOWN
    if policies.cpu == "static" and any(zone.socket < 0 and zone.cpus for zone in topology.zones):
        unknown["cpu"] = SOCKETS_UNKNOWN
    return Node(
        tuple(zone.id for zone in topology.zones),
        _cpus(topology, policies) if policies.cpu == "static" else None,
        devices={name: tuple(pool) for name, pool in pools.items()},
        distances={zone.id: dict(zone.distances) for zone in topology.zones},
        unknown=unknown,
    )


def _cpus(topology: Topology, policies: Policies) -> CpuFacts:
    core_of = {cpu: min(core) for zone in topology.zones for core in zone.cores for cpu in core}
    cpus = [PlacedCpu(cpu, zone.id, zone.socket, core_of.get(cpu, cpu)) for zone in topology.zones for cpu in zone.cpus]
    return CpuFacts(
        CpuLayout(tuple(cpus)),
        _set(cpu for zone in topology.zones for cpu in zone.free_cpus),
        _set(policies.reserved_cpus),
        frozenset(name for name, value in policies.cpu_options if value == "true"),
    )


def _set(cpus: Iterable[int]) -> int:
    found = 0
    for cpu in cpus:
        found |= 1 << cpu
    return found
