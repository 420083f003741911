"""What a prediction is made from, and what it says: frozen values without I/O.

Amounts are as the scheduler counts them: cpu in thousandths, memory and huge pages in bytes, devices by number.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from gpu_topology.predict.hints import mask_of

ADMIT = "Admit"
TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
SMT_ALIGNMENT_ERROR = "SMTAlignmentError"
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
OUT_OF = "OutOf"  # and the name of the resource, as OutOfcpu
UNKNOWN = "Unknown"


class Policy(StrEnum):
    """topologyManagerPolicy."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Scope(StrEnum):
    """topologyManagerScope."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True)
class Options:
    """topologyManagerPolicyOptions."""

    prefer_closest_numa_nodes: bool = False
    max_allowable_numa_nodes: int = 8


@dataclass(frozen=True)
class Container:
    """A container's resources, as the API server completed them: a limit without a request is a request too."""

    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    is_sidecar: bool = False  # an init container with restartPolicy Always


@dataclass(frozen=True)
class Pod:
    """A pod that kubelet has not seen yet. `requests` and `limits` are those of the pod itself, if it has any."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    overhead: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_order(self) -> tuple[Container, ...]:
        """The containers as kubelet allocates for them."""
        return (*self.init_containers, *self.containers)


@dataclass(frozen=True)
class PlacedCpu:
    """A logical CPU: `core` is the lowest CPU of its physical core, unlike the kernel's core_id."""

    id: int
    numa_node: int
    socket: int
    core: int


@dataclass(frozen=True)
class CpuLayout:
    """A machine's CPUs; make one a machine and keep it, since it remembers the sets that are made of it.

    A set of CPUs is an integer with the bit of each of them.
    """

    cpus: tuple[PlacedCpu, ...]

    @cached_property
    def by_node(self) -> Mapping[int, int]:
        """The set of CPUs of each NUMA node that has any."""
        return _grouped((cpu.numa_node, cpu.id) for cpu in self.cpus)

    @cached_property
    def by_socket(self) -> Mapping[int, int]:
        """The set of CPUs of each socket."""
        return _grouped((cpu.socket, cpu.id) for cpu in self.cpus)

    @cached_property
    def by_core(self) -> Mapping[int, int]:
        """The set of CPUs of each physical core."""
        return _grouped((cpu.core, cpu.id) for cpu in self.cpus)

    @cached_property
    def nodes(self) -> int:
        """The NUMA nodes that have CPUs, as a mask."""
        return mask_of(self.by_node)

    @cached_property
    def everything(self) -> int:
        """The set of all CPUs."""
        return mask_of(cpu.id for cpu in self.cpus)

    @cached_property
    def in_nodes(self) -> "NodeSets":
        """The set of CPUs of each set of NUMA nodes, made when asked for."""
        return NodeSets(self.by_node)

    @property
    def threads(self) -> int:
        """CPUs a core."""
        return len(self.cpus) // len(self.by_core) if self.by_core else 0

    def sockets_of(self, nodes: int) -> set[int]:
        """The sockets that have a CPU in one of these NUMA nodes."""
        cpus = self.in_nodes[nodes]
        return {socket for socket, own in self.by_socket.items() if own & cpus}


class NodeSets(dict[int, int]):
    """From a mask of NUMA nodes to the set of their CPUs."""

    def __init__(self, by_node: Mapping[int, int]) -> None:
        super().__init__()
        self._by_node = by_node

    def __missing__(self, nodes: int) -> int:
        cpus = 0
        for node, own in self._by_node.items():
            if nodes >> node & 1:
                cpus |= own
        self[nodes] = cpus
        return cpus


@dataclass(frozen=True)
class CpuFacts:
    """The static CPU manager policy on a node. `free` has no reserved CPU and none that a container has for itself."""

    layout: CpuLayout
    free: int  # a set of CPUs
    reserved: int = 0  # a set of CPUs
    options: frozenset[str] = frozenset()  # the names in cpuManagerPolicyOptions that are true


@dataclass(frozen=True)
class MemoryZone:
    """One NUMA node as the Static memory manager policy keeps it; sizes in bytes by resource, as hugepages-2Mi."""

    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    assignments: int = 0  # blocks of containers that lie here
    group: tuple[int, ...] = ()  # the nodes of which the blocks here are made; itself alone where empty


@dataclass(frozen=True)
class PluginDevice:
    """A device as its plugin announces it: `numa_nodes` None is one without topology."""

    numa_nodes: tuple[int, ...] | None
    is_healthy: bool = True
    is_allocated: bool = False


@dataclass(frozen=True)
class Node:
    """What kubelet knows of its node. `cpus` or `memory` None: that manager's policy is None.

    `unknown` says of cpu, memory or a device resource why the facts here are not to be relied on.
    """

    numa_nodes: tuple[int, ...]
    cpus: CpuFacts | None = None
    memory: Mapping[int, MemoryZone] | None = None
    devices: Mapping[str, tuple[PluginDevice, ...]] = field(default_factory=dict)
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(
        default_factory=dict
    )  # node.status.allocatable; what is missing is not checked
    requested: Mapping[str, int] = field(default_factory=dict)  # by the node's other pods; "pods" is their number
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Affinity:
    """What the Topology Manager chose for a container: NUMA nodes, none for no preference."""

    nodes: tuple[int, ...]
    is_preferred: bool


@dataclass(frozen=True)
class Verdict:
    """What kubelet would say: `reason` as in the pod's status, ADMIT or UNKNOWN, and one sentence of why.

    `affinities` has one for each container of a pod that is admitted, None where it is left to chance.
    """

    reason: str
    why: str
    affinities: Mapping[str, Affinity | None] = field(default_factory=dict)

    @property
    def is_refusal(self) -> bool:
        """Whether kubelet is known to refuse the pod; what is unknown is no refusal."""
        return self.reason not in (ADMIT, UNKNOWN)


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    groups: dict[int, int] = {}
    for key, cpu in pairs:
        groups[key] = groups.get(key, 0) | 1 << cpu
    return groups
