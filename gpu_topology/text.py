"""A topology as tables for people."""

from collections.abc import Iterable, Sequence

from gpu_topology.api import UNKNOWN_NODE, Machine, Nic, Topology
from gpu_topology.links import relation

LEGEND = """\
NV#   that many NVLinks, directly or through NVSwitches
PIX   one PCIe switch at most
PXB   several PCIe switches, not the host bridge
PHB   the PCIe host bridge
NODE  different host bridges of one NUMA node
SYS   different NUMA nodes, or unknown"""
_GIB = 1 << 30


def show_table(topology: Topology) -> str:
    """The matrix, the network cards and the rails."""
    return _join(_matrix(topology, wide=False), _nics(topology), _rails(topology))


def show_wide(topology: Topology) -> str:
    """The same with virtual functions, scores, GPUs, NUMA nodes and a legend."""
    matrix = _matrix(topology, wide=True)
    return _join(
        _gpus(topology),
        _nodes(topology.machine),
        matrix,
        [LEGEND],
        _scores(topology),
        _nics(topology),
        _rails(topology),
    )


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as the kernel writes lists: 0-3,8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def size(memory: int) -> str:
    """Bytes as GiB."""
    return f"{memory / _GIB:.0f} GiB"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; the first row has the headings. Nothing moves the cursor."""
    cells = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _join(*parts: Sequence[str]) -> str:
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _matrix(topology: Topology, wide: bool) -> list[str]:
    """As `nvidia-smi topo -m` has it: GPUs and cards, and the CPUs near each GPU."""
    machine = topology.machine
    if not machine.gpus:
        return ["no NVIDIA GPU here"]
    functions = [one for nic in machine.nics for one in (nic.functions if wide else (nic,))]
    gpus = [gpu.id for gpu in machine.gpus]
    names = [*gpus, *(one.name for one in functions)]
    cpus = {node.id: ranges(node.cpus) for node in machine.numa_nodes}
    rows = [["", *names, "CPUs", "NUMA"]]
    for gpu in machine.gpus:
        row = topology.links[gpu.id]
        near = [cpus.get(gpu.numa_node, "?"), _node(gpu.numa_node)]
        rows.append([gpu.id, *("X" if name == gpu.id else str(row[name]) for name in names), *near])
    one_node = len(machine.numa_nodes) == 1
    for one in functions:
        to_gpus = [str(topology.links[gpu][one.name]) for gpu in gpus]
        others = ["X" if one is other else relation(one, other, one_node).name for other in functions]
        rows.append([one.name, *to_gpus, *others, "", ""])
    return columns(rows)


def _scores(topology: Topology) -> list[str]:
    gpus = [gpu.id for gpu in topology.machine.gpus]
    rows = [[one, *("" if one == other else str(topology.links[one][other].score) for other in gpus)] for one in gpus]
    return columns([["score", *gpus], *rows]) if gpus else []


def _gpus(topology: Topology) -> list[str]:
    rows = [[gpu.id, gpu.pci, _node(gpu.numa_node), gpu.name or "?", gpu.uuid or "?"] for gpu in topology.machine.gpus]
    return columns([["GPU", "PCI", "NUMA", "NAME", "UUID"], *rows]) if rows else []


def _nodes(machine: Machine) -> list[str]:
    """The NUMA nodes; those that hold nothing, as a Grace machine has for MIG, are left out."""
    nodes = [node for node in machine.numa_nodes if node.cpus or node.memory]
    rows = [
        [
            str(node.id),
            ranges(node.cpus) or "none",
            size(node.memory),
            " ".join(str(node.distances.get(other.id, "?")) for other in nodes),
        ]
        for node in nodes
    ]
    return columns([["NUMA", "CPUS", "MEMORY", "DISTANCES"], *rows]) if rows else []


def _nics(topology: Topology) -> list[str]:
    rows = [
        [nic.name, nic.pci, _node(nic.numa_node), nic.netdev or "-", _roce(nic), nic.subnet or "-", _vfs(nic)]
        for nic in topology.machine.nics
    ]
    return columns([["CARD", "PCI", "NUMA", "INTERFACE", "ROCE", "SUBNET", "VFS"], *rows]) if rows else []


def _rails(topology: Topology) -> list[str]:
    rows = [
        [
            rail.resource or "(no number yet)",
            rail.subnet,
            ", ".join(nic.name for nic in rail.nics),
            ", ".join(device.id for device in rail.devices)
            or f"none of {len(rail.gpus)} GPUs: see gpu-topology vfs plan",
        ]
        for rail in topology.rails
    ]
    return (
        columns([["CLASS", "SUBNET", "CARDS", "DEVICES"], *rows]) if rows else ["no rail: no RoCE card with a subnet"]
    )


def _roce(nic: Nic) -> str:
    return "yes" if nic.roce else "no"


def _vfs(nic: Nic) -> str:
    made = ", ".join(vf.name for vf in nic.vfs) or "none"
    return f"{made} (of {nic.max_vfs})" if nic.max_vfs else made


def _node(number: int) -> str:
    return "?" if number == UNKNOWN_NODE else str(number)
