"""From what a machine says of itself to its topology, top to bottom."""

from collections.abc import Mapping
from dataclasses import replace

from gpu_topology.api import Gpu, Machine, Nic, Topology
from gpu_topology.cpus import read_cpus, read_numa_nodes
from gpu_topology.links import all_links
from gpu_topology.node_file import NodeFile, adopt_numbers, bind_indices, number_subnets
from gpu_topology.nvml import GpuFacts
from gpu_topology.overrides import Overrides
from gpu_topology.pci import PciFunction, read_devices
from gpu_topology.rails import DEFAULT_RESOURCE, make_rails, near_gpus, pair
from gpu_topology.recording import Inputs

NO_OVERRIDES = Overrides()
NOTHING_BOUND = NodeFile()


def find_topology(
    inputs: Inputs,
    overrides: Overrides = NO_OVERRIDES,
    bound: NodeFile = NOTHING_BOUND,
    numbers: Mapping[str, int] | None = None,
    pattern: str = DEFAULT_RESOURCE,
) -> tuple[Topology, NodeFile]:
    """The machine's topology, and `bound` with what is new.

    `numbers` are the cluster's, by subnet: a subnet that neither they nor `bound` knows has no class yet. Without a
    cluster (None) they are the node's own.
    """
    found = read_devices(inputs.sysfs, inputs.subnets)
    indices = bind_indices(bound.gpus, (gpu.pci for gpu in found.gpus))
    numa_nodes = read_numa_nodes(inputs.sysfs)
    machine = Machine(
        gpus=tuple(
            sorted(
                (_gpu(gpu, indices[gpu.pci], inputs.facts, overrides) for gpu in found.gpus), key=lambda gpu: gpu.index
            )
        ),
        nics=tuple(_nic(nic, overrides) for nic in found.nics),
        numa_nodes=numa_nodes,
        cpus=read_cpus(inputs.sysfs, numa_nodes),
    )
    links = all_links(machine)
    near = near_gpus(machine, links, bound.pairs)
    pairs = pair(near, machine.nics, bound.pairs)
    subnets = [nic.subnet for nic in machine.nics if nic.pci in near]
    if numbers is None:
        rails, cluster_rails = number_subnets(bound.rails, subnets), bound.cluster_rails
    else:
        rails, cluster_rails = bound.rails, adopt_numbers(bound.cluster_rails, subnets, numbers)
    made = make_rails(machine, near, pairs, rails if numbers is None else cluster_rails, pattern)
    return Topology(machine, links, made), NodeFile(indices, pairs, rails, bound.ids, cluster_rails)


def _gpu(function: PciFunction, index: int, facts: Mapping[str, GpuFacts], overrides: Overrides) -> Gpu:
    known = facts.get(function.pci, GpuFacts())
    return Gpu(
        index=index,
        pci=function.pci,
        path=overrides.path(function.pci, function.path),
        numa_node=overrides.numa_node.get(function.pci, function.numa_node),
        name=known.name,
        uuid=known.uuid,
        board=known.board,
        nvlinks=known.nvlinks,
        switch_nvlinks=known.switch_nvlinks,
    )


def _nic(nic: Nic, overrides: Overrides) -> Nic:
    """The card where the overrides say it is; its virtual functions are at the same place unless they are named."""

    def place(pci: str) -> str:
        return pci if pci in overrides.switch else nic.pci

    vfs = tuple(
        replace(
            vf,
            path=(*overrides.path(place(vf.pci), vf.path)[:-1], vf.pci),
            numa_node=overrides.numa_node.get(vf.pci, overrides.numa_node.get(nic.pci, vf.numa_node)),
        )
        for vf in nic.vfs
    )
    return replace(
        nic,
        path=overrides.path(nic.pci, nic.path),
        numa_node=overrides.numa_node.get(nic.pci, nic.numa_node),
        vfs=vfs,
    )
