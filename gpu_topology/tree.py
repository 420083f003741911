"""The PCIe tree of a machine: what hangs below which switch, by NUMA node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpu_topology.api import UNKNOWN_NODE, Gpu, Machine, Nic, Topology
from gpu_topology.text import ranges, size

Leaf = Gpu | Nic


@dataclass(frozen=True)
class Branch:
    """A place where the tree forks, or a host bridge; `names` are the bridges on the way to it, without a fork."""

    names: tuple[str, ...]
    below: "tuple[Branch | Leaf, ...]"


def grow(machine: Machine) -> Mapping[int, tuple[Branch, ...]]:
    """The host bridges with GPUs or network cards, for each NUMA node by number; -1 is unknown."""
    trees: dict[int, list[Leaf]] = {}
    devices: tuple[Leaf, ...] = (*machine.gpus, *machine.nics)
    for device in devices:
        trees.setdefault(device.numa_node, []).append(device)
    return {node: tuple(one for one in _fork(trees[node], 0) if isinstance(one, Branch)) for node in sorted(trees)}


def _fork(devices: Sequence[Leaf], depth: int) -> Iterator[Branch | Leaf]:
    """What is seen from a bridge at this depth: devices of which nothing more is known, and branches."""
    groups: dict[str, list[Leaf]] = {}
    for device in sorted(devices, key=lambda device: device.path):
        if len(device.path) <= depth + 1 and depth > 0:
            yield device
        else:
            groups.setdefault(device.path[depth] if device.path else "place unknown", []).append(device)
    for name, group in groups.items():
        if depth > 0 and len(group) == 1:
            alone = group[0]
            bridges = alone.path[depth:-1]
            yield alone if len(bridges) <= 1 else Branch(bridges, (alone,))  # one is its port
            continue
        inner = tuple(_fork(group, depth + 1))
        if len(inner) == 1 and isinstance(inner[0], Branch) and depth > 0:
            yield Branch((name, *inner[0].names), inner[0].below)
        else:
            yield Branch((name,), inner)


def show_tree(topology: Topology) -> str:
    """The tree as lines, with branches drawn."""
    machine = topology.machine
    nodes = {node.id: node for node in machine.numa_nodes}
    lines: list[str] = []
    for number, bridges in grow(machine).items():
        node = nodes.get(number)
        holds = f": CPUs {ranges(node.cpus) or 'none'}, {size(node.memory)}" if node else ""
        lines.append(f"NUMA node {'unknown' if number == UNKNOWN_NODE else number}{holds}")
        lines += _drawn(bridges, "")
    return "".join(f"{line}\n" for line in lines) or "no GPU and no network card here\n"


def _drawn(things: Sequence[Branch | Leaf], indent: str) -> Iterator[str]:
    for place, thing in enumerate(things):
        last = place == len(things) - 1
        lead = f"{indent}{'└── ' if last else '├── '}"
        if isinstance(thing, Branch):
            yield f"{lead}{' › '.join(thing.names)}"
            yield from _drawn(thing.below, f"{indent}{'    ' if last else '│   '}")
        else:
            yield f"{lead}{_described(thing)}"


def _described(device: Leaf) -> str:
    if isinstance(device, Gpu):
        return f"{device.pci}  {device.id}  {device.name}".rstrip()
    words = [device.pci, device.name, device.netdev if device.netdev != device.name else ""]
    words += ["RoCE" if device.roce else "", device.subnet]
    words.append(f"{len(device.vfs)} VFs: {', '.join(vf.name for vf in device.vfs)}" if device.vfs else "")
    return "  ".join(word for word in words if word)
