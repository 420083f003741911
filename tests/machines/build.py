"""python -m tests.machines.build: writes each of the `descriptions` to its folder, as `gpu-topology record` would."""

import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_topology.recording import FILE, as_text
from gpu_topology.sysfs import Tree, cpu_list

MACHINES = Path(__file__).parent


@dataclass(frozen=True)
class Node:
    """A NUMA node; its CPUs are cores first, then as many second threads, if it has two threads a core."""

    id: int
    package: int
    cpus: str
    memory_gib: int
    threads: int = 2


@dataclass(frozen=True)
class Gpu:
    pci: str
    device: int
    name: str = ""
    switch_nvlinks: int = 0
    nvlinks: Mapping[str, int] = field(default_factory=dict)  # by PCI address


@dataclass(frozen=True)
class Card:
    """A network card's function: `roce` None is InfiniBand, False is Ethernet without it, `rdma` empty is none."""

    pci: str
    rdma: str
    netdev: str
    roce: bool | None = True
    subnet: str = ""
    up: bool = True
    vfs: "tuple[Card, ...]" = ()
    max_vfs: int = 16
    device: int = 0x101D


@dataclass(frozen=True)
class Bridge:
    """A root port, or a switch's upstream or downstream port."""

    pci: str
    below: "tuple[Bridge | Gpu | Card, ...]"


@dataclass(frozen=True)
class Host:
    """A host bridge, as pci0000:16, on a NUMA node or on none that is known."""

    name: str
    numa_node: int
    below: "tuple[Bridge | Gpu | Card, ...]"
    folder: str = "devices"


@dataclass(frozen=True)
class Built:
    """A machine, where it is known from, and what `nvidia-smi topo -m` prints between its GPUs and cards there."""

    name: str
    source: str
    nodes: tuple[Node, ...]
    hosts: tuple[Host, ...]
    distances: tuple[tuple[int, ...], ...] = ()

    def document(self) -> dict[str, object]:
        """What its recording holds."""
        devices = [entry for host in self.hosts for entry in _walk(host)]
        gpus = sorted((d for _, _, d in devices if isinstance(d, Gpu)), key=lambda gpu: gpu.pci)
        cards = [d for _, _, d in devices if isinstance(d, Card)]
        return {
            "source": self.source,
            "sysfs": _sysfs(self, devices),
            "subnets": {card.netdev: [card.subnet] for card in cards if card.subnet},
            "nvml": {gpu.pci: _facts(gpu, place) for place, gpu in enumerate(gpus) if gpu.name},
        }


def _facts(gpu: Gpu, place: int) -> dict[str, object]:
    facts = {
        "name": gpu.name,
        "uuid": f"GPU-00000000-0000-0000-0000-{place:012d}",
        "nvlinks": dict(gpu.nvlinks),
        "switch_nvlinks": gpu.switch_nvlinks,
    }
    return {name: value for name, value in facts.items() if value}


Entry = tuple[str, int, Bridge | Gpu | Card]


def _walk(host: Host) -> Iterator[Entry]:
    """Every device below a host bridge: its folder, its NUMA node, itself; virtual functions beside their card."""

    def below(folder: str, device: Bridge | Gpu | Card) -> Iterator[Entry]:
        here = f"{folder}/{device.pci}"
        yield here, host.numa_node, device
        if isinstance(device, Bridge):
            for one in device.below:
                yield from below(here, one)
        if isinstance(device, Card):
            for vf in device.vfs:
                yield f"{folder}/{vf.pci}", host.numa_node, vf

    for device in host.below:
        yield from below(f"{host.folder}/{host.name}", device)


def _sysfs(machine: Built, devices: list[Entry]) -> Tree:
    tree: Tree = {}
    for folder, numa_node, device in devices:
        _put(tree, f"bus/pci/devices/{device.pci}", f"-> ../../../{folder}")
        _put(tree, f"{folder}/numa_node", str(numa_node))
        match device:
            case Bridge():
                _put(tree, f"{folder}/class", "0x060400")
            case Gpu():
                _put(tree, f"{folder}/class", "0x030200")
                _put(tree, f"{folder}/vendor", "0x10de")
                _put(tree, f"{folder}/device", f"0x{device.device:04x}")
            case Card():
                _put_card(tree, folder, device)
    for node in machine.nodes:
        _put_node(tree, machine, node)
    if machine.nodes:
        every = sorted(cpu for node in machine.nodes for cpu in cpu_list(node.cpus))
        _put(tree, "devices/system/cpu/online", f"{every[0]}-{every[-1]}")
    return tree


def _put_card(tree: Tree, folder: str, card: Card) -> None:
    _put(tree, f"{folder}/class", "0x020700" if card.roce is None else "0x020000")
    _put(tree, f"{folder}/vendor", "0x15b3")
    _put(tree, f"{folder}/device", f"0x{card.device:04x}")
    if card.netdev:
        _put(tree, f"{folder}/net/{card.netdev}/operstate", "up" if card.up else "down")
    if card.rdma:
        port = f"{folder}/infiniband/{card.rdma}/ports/1"
        _put(tree, f"{port}/link_layer", "InfiniBand" if card.roce is None else "Ethernet")
        _put(tree, f"{port}/state", "4: ACTIVE" if card.up else "1: DOWN")
        types = ("IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2") if card.roce else ("IB/RoCE v1",)
        for place, kind in enumerate(types):
            _put(tree, f"{port}/gid_attrs/types/{place}", kind)
            if card.netdev:
                _put(tree, f"{port}/gid_attrs/ndevs/{place}", card.netdev)
    if card.max_vfs:
        _put(tree, f"{folder}/sriov_totalvfs", str(card.max_vfs))
        _put(tree, f"{folder}/sriov_numvfs", str(len(card.vfs)))
    for place, vf in enumerate(card.vfs):
        _put(tree, f"{folder}/virtfn{place}", f"-> ../{vf.pci}")
        _put(tree, f"{posixpath.dirname(folder)}/{vf.pci}/physfn", f"-> ../{card.pci}")


def _put_node(tree: Tree, machine: Built, node: Node) -> None:
    folder = f"devices/system/node/node{node.id}"
    cpus = cpu_list(node.cpus)
    place = [other.id for other in machine.nodes].index(node.id)
    row = machine.distances[place] if machine.distances else [10 if other is node else 21 for other in machine.nodes]
    _put(tree, f"{folder}/cpulist", node.cpus)
    _put(tree, f"{folder}/distance", " ".join(map(str, row)))
    _put(tree, f"{folder}/meminfo", f"Node {node.id} MemTotal:       {node.memory_gib * 1024 * 1024} kB")
    cores = max(1, len(cpus) // node.threads)
    for number, cpu in enumerate(cpus):
        topology = f"devices/system/cpu/cpu{cpu}/topology"
        _put(tree, f"{topology}/physical_package_id", str(node.package))
        # Cores are numbered through a package, which may have several NUMA nodes.
        before = sum(1 for other in machine.nodes if other.package == node.package and other.id < node.id)
        _put(tree, f"{topology}/core_id", str(before * cores + number % cores))


def _put(tree: Tree, path: str, value: str) -> None:
    *folders, name = path.split("/")
    here = tree
    for folder in folders:
        below = here.setdefault(folder, {})
        assert isinstance(below, dict)
        here = below
    here[name] = value


def text_of(machine: Built) -> str:
    """What the machine's file has to hold."""
    return as_text(machine.document()) + "\n"


def main() -> None:
    from tests.machines.descriptions import BUILT  # noqa: PLC0415 - they are made of what is above

    for machine in BUILT:
        folder = MACHINES / machine.name
        folder.mkdir(exist_ok=True)
        text = text_of(machine)
        assert json.loads(text)
        (folder / FILE).write_text(text)
        print(f"{folder / FILE}: {len(text) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
