"""The facts of a prediction from a machine that was looked at, and from what is said to be in use on it."""

from collections.abc import Collection

from gpu_topology.api import Cpu, Machine
from gpu_topology.predict.demand import CPU
from gpu_topology.predict.facts import CpuFacts, CpuLayout, Node, PlacedCpu, PluginDevice
from gpu_topology.predict.hints import mask_of

GPUS = "gpu"  # the resource under which all GPUs of a machine are offered


def node_of(
    machine: Machine, used_gpus: Collection[int], used_cpus: Collection[int], reserved_cpus: Collection[int]
) -> Node:
    """A node with the static CPU manager policy, where some GPUs (by index) and CPUs are in use."""
    layout = layout_of(machine.cpus)
    free = layout.everything & ~mask_of(used_cpus) & ~mask_of(reserved_cpus)
    strange = [cpu.id for cpu in machine.cpus if min(cpu.numa_node, cpu.package, cpu.core) < 0]
    numbers = [node.id for node in machine.numa_nodes]
    return Node(
        numa_nodes=tuple(numbers) or (0,),  # kubelet sees one where the kernel has none
        cpus=CpuFacts(layout, free, mask_of(reserved_cpus)),
        devices={
            GPUS: tuple(
                PluginDevice(
                    numa_nodes=(gpu.numa_node,) if gpu.numa_node >= 0 else None, is_allocated=gpu.index in used_gpus
                )
                for gpu in machine.gpus
            )
        },
        distances={node.id: node.distances for node in machine.numa_nodes},
        unknown={CPU: f"sysfs does not say where CPU {strange[0]} is"} if strange else {},
    )


def layout_of(cpus: Collection[Cpu]) -> CpuLayout:
    """The CPUs as kubelet numbers them: a core by its lowest CPU."""
    lowest: dict[tuple[int, int], int] = {}
    for cpu in cpus:
        core = cpu.package, cpu.core
        lowest[core] = min(cpu.id, lowest.get(core, cpu.id))
    return CpuLayout(
        tuple(PlacedCpu(cpu.id, cpu.numa_node, cpu.package, lowest[cpu.package, cpu.core]) for cpu in cpus)
    )
