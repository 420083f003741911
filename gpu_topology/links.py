"""How near two devices are, and what a pair scores: rules on PCIe paths, NUMA nodes and NVLinks. No I/O."""

from collections.abc import Mapping
from typing import Protocol

from gpu_topology.api import UNKNOWN_NODE, Gpu, Link, Machine, Relation


class Placed(Protocol):
    """A device with a place: `path` is its way from the host bridge to itself."""

    @property
    def pci(self) -> str: ...
    @property
    def path(self) -> tuple[str, ...]: ...
    @property
    def numa_node(self) -> int: ...


def relation(one: Placed, other: Placed, one_node: bool = False) -> Relation:
    """The PCIe relation of two devices, as `nvidia-smi topo -m` defines the words.

    An unknown NUMA node is near to nothing, unless the machine has only one (`one_node`).
    """
    shared = 0
    for mine, its in zip(one.path, other.path, strict=False):
        if mine != its:
            break
        shared += 1
    if shared > 1:
        # Below what they share, a device at a switch's port has one bridge above it, that port.
        bridges = max(len(one.path), len(other.path)) - shared - 1
        return Relation.PIX if bridges <= 1 else Relation.PXB
    if shared == 1:
        return Relation.PHB
    same = one.numa_node == other.numa_node != UNKNOWN_NODE
    return Relation.NODE if same or one_node else Relation.SYS


def link(one: Gpu, other: Gpu, one_node: bool = False) -> Link:
    """What lies between two GPUs; through NVSwitches each pair has as many NVLinks as the one with fewer of them."""
    near = Relation.BOARD if one.board and one.board == other.board else relation(one, other, one_node)
    direct = max(one.nvlinks.get(other.pci, 0), other.nvlinks.get(one.pci, 0))
    return Link(near, direct or min(one.switch_nvlinks, other.switch_nvlinks))


def all_links(machine: Machine) -> Mapping[str, Mapping[str, Link]]:
    """From each GPU, by its id, to every other GPU and every network function, by its name."""
    one_node = len(machine.numa_nodes) == 1
    functions = [function for nic in machine.nics for function in nic.functions]
    return {
        gpu.id: {
            **{other.id: link(gpu, other, one_node) for other in machine.gpus if other is not gpu},
            **{function.name: Link(relation(gpu, function, one_node)) for function in functions},
        }
        for gpu in machine.gpus
    }


def scores(links: Mapping[str, Mapping[str, Link]], gpus: tuple[str, ...]) -> Mapping[str, Mapping[str, int]]:
    """The scores of the pairs of these GPUs."""
    return {one: {other: links[one][other].score for other in gpus if other != one} for one in gpus}
