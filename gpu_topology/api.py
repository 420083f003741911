"""What the package knows of a machine, as frozen values. Standard library only, cheap to import."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

UNKNOWN_NODE = -1  # what sysfs says of a device whose NUMA node the firmware does not name


class Relation(IntEnum):
    """How near two PCIe devices are to each other, far to near; the value is the pair's score.

    The names are those of `nvidia-smi topo -m`. BOARD, two GPUs on one card, it prints as PIX.
    """

    SYS = 10  # between NUMA nodes, or unknown
    NODE = 20  # same NUMA node, different host bridges
    PHB = 30  # same host bridge
    PXB = 40  # several switches, not the host bridge
    PIX = 50  # one switch
    BOARD = 60


NVLINK_SCORE = 100  # of each NVLink, added to the score of the relation


@dataclass(frozen=True)
class Link:
    """What lies between two devices."""

    relation: Relation
    nvlinks: int = 0

    @property
    def score(self) -> int:
        """Higher is nearer."""
        return self.relation + NVLINK_SCORE * self.nvlinks

    def __str__(self) -> str:
        """As `nvidia-smi topo -m` prints it: NV# where there are NVLinks, else the PCIe relation."""
        if self.nvlinks:
            return f"NV{self.nvlinks}"
        return Relation.PIX.name if self.relation is Relation.BOARD else self.relation.name


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node; one without CPUs holds memory only, as those of a Grace machine's GPUs."""

    id: int
    cpus: tuple[int, ...]
    memory: int  # bytes
    distances: Mapping[int, int]  # to each node, as the firmware says them: 10 is local


@dataclass(frozen=True)
class Cpu:
    """A logical CPU; threads of one core share `package` and `core`. -1 is unknown."""

    id: int
    numa_node: int
    package: int
    core: int


@dataclass(frozen=True)
class Gpu:
    """A GPU. `path` is its way from the host bridge: ("pci0000:16", "0000:16:02.0", …, its own address)."""

    index: int
    pci: str
    path: tuple[str, ...]
    numa_node: int = UNKNOWN_NODE
    name: str = ""
    uuid: str = ""
    board: str = ""  # the same for two GPUs on one card, else empty
    nvlinks: Mapping[str, int] = field(default_factory=dict)  # to other GPUs, by their PCI address
    switch_nvlinks: int = 0  # to NVSwitches

    @property
    def id(self) -> str:
        """gpu0, gpu1, …"""
        return f"gpu{self.index}"


@dataclass(frozen=True)
class Vf:
    """A virtual function of a network card. `name` is its RDMA device, its interface or its PCI address."""

    index: int
    name: str
    pci: str
    path: tuple[str, ...]
    numa_node: int = UNKNOWN_NODE
    netdev: str = ""


@dataclass(frozen=True)
class Nic:
    """A network card's physical function, or a virtual function whose physical one is not in sight, as in a VM."""

    name: str
    pci: str
    path: tuple[str, ...]
    numa_node: int = UNKNOWN_NODE
    netdev: str = ""
    roce: bool = False  # RoCE v2 on a port that is up
    subnet: str = ""  # of its first address, as 10.1.0.0/24; empty if it has none
    vfs: tuple[Vf, ...] = ()
    max_vfs: int = 0  # 0: no SR-IOV

    @property
    def functions(self) -> "tuple[Nic | Vf, ...]":
        """Itself and its virtual functions."""
        return (self, *self.vfs)


@dataclass(frozen=True)
class Machine:
    """A node's GPUs by index, network cards by PCI address, NUMA nodes and CPUs by number."""

    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    numa_nodes: tuple[NumaNode, ...]
    cpus: tuple[Cpu, ...]


@dataclass(frozen=True)
class Device:
    """What is handed out: a GPU with the network function that is its own."""

    gpu: Gpu
    nic: Nic
    function: Nic | Vf

    @property
    def id(self) -> str:
        """gpu0/mlx5_4"""
        return f"{self.gpu.id}/{self.function.name}"


@dataclass(frozen=True)
class Rail:
    """One RoCE subnet on this node: its cards, the GPUs near them, and what can be handed out of these."""

    subnet: str
    number: int | None  # None as long as nobody has given the subnet one
    resource: str  # the class, as dsagent.io/gpu-roce1; empty without a number
    nics: tuple[Nic, ...]
    near: Mapping[str, tuple[Gpu, ...]]  # the GPUs that are a card's own, by the card's PCI address
    devices: tuple[Device, ...]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All its GPUs, by index."""
        return tuple(sorted((gpu for own in self.near.values() for gpu in own), key=lambda gpu: gpu.index))


@dataclass(frozen=True)
class Topology:
    """A machine, what lies between its devices, and its rails by subnet."""

    machine: Machine
    links: Mapping[str, Mapping[str, Link]]  # GPU id -> id or name of every other GPU and network function
    rails: tuple[Rail, ...]

    def document(self) -> dict[str, object]:
        """The form that `gpu-topology show -o json` prints; a subnet that is not known is null."""
        machine = self.machine
        return {
            "gpus": [
                {"id": gpu.id, "pci": gpu.pci, "numa_node": gpu.numa_node, "uuid": gpu.uuid, "name": gpu.name}
                for gpu in machine.gpus
            ],
            "nics": [
                {
                    "name": nic.name,
                    "pci": nic.pci,
                    "numa_node": nic.numa_node,
                    "roce": nic.roce,
                    "subnet": nic.subnet or None,
                    "vfs": [vf.name for vf in nic.vfs],
                }
                for nic in machine.nics
            ],
            "numa_nodes": [
                {"id": node.id, "cpus": list(node.cpus), "memory": node.memory} for node in machine.numa_nodes
            ],
            "matrix": {gpu: {name: str(link) for name, link in row.items()} for gpu, row in self.links.items()},
            "scores": {
                gpu.id: {other.id: self.links[gpu.id][other.id].score for other in machine.gpus if other is not gpu}
                for gpu in machine.gpus
            },
            "rails": [{"subnet": rail.subnet, "nics": [nic.name for nic in rail.nics]} for rail in self.rails],
            "classes": {rail.resource: [device.id for device in rail.devices] for rail in self.rails if rail.resource},
        }
