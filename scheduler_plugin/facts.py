"""What a decision is made from, as frozen values: what a pod needs, and what is known of one node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

Key = tuple[str, str]
"""A dataset on the nodes: its namespace there (`_cluster` for a ClusterDataset) and its name."""

HEADROOM = 1.2  # an agent takes a dataset only if 1.2 times its size fits
UNMEASURED_RATE = 100e6  # bytes a second, about a gigabit: of a node that has measured nothing yet
UNKNOWN_BYTES = 1 << 30  # of a dataset that nobody has listed yet


class Space(NamedTuple):
    """A part of a disk."""

    bytes: int = 0
    inodes: int = 0


NOTHING = Space()


@dataclass(frozen=True, slots=True)
class Held:
    """A version of a dataset on a node, whole and verified (`ready`) or on its way. `present`: bytes that are here."""

    version: str
    ready: bool
    present: int
    in_use: bool
    size: Space = NOTHING  # what it takes or will take on the disk


@dataclass(frozen=True, slots=True)
class Cache:
    """What a node's agent says. `evictable` is what unused versions take; `rate`, in bytes a second, that of the
    slowest of source, network, disk and unpacking.
    """

    free: Space
    evictable: Space
    inodes_limited: bool
    rate: float
    held: Mapping[Key, tuple[Held, ...]]


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a node, with its score beside each other one."""

    id: str
    resource: str
    numa_node: int
    healthy: bool
    allocated: bool
    scores: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Zone:
    """A NUMA node; CPUs by number, each core's together; distances to others by their number. Socket -1 is unknown."""

    id: int
    socket: int
    cpus: tuple[int, ...]
    free_cpus: tuple[int, ...]
    cores: tuple[tuple[int, ...], ...]
    distances: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Policies:
    """Kubelet's policies, in its own words."""

    topology: str
    scope: str
    topology_options: tuple[tuple[str, str], ...]
    cpu: str
    cpu_options: tuple[tuple[str, str], ...]
    reserved_cpus: tuple[int, ...]
    memory: str


@dataclass(frozen=True)
class Topology:
    """What a node's device plugin says. `policies` None: kubelet's are not known."""

    policies: Policies | None
    zones: tuple[Zone, ...]
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All that is known of a node. `users`: the pods bound here, by the datasets they use. `promised`: the room that
    pods need whose agent has not seen them yet. `requested`: devices of our classes that pods bound here ask for.
    """

    name: str = ""
    known: bool = False  # whether there is a Node of that name
    cache: Cache | None = None
    topology: Topology | None = None
    users: Mapping[Key, int] = field(default_factory=dict)
    promised: Space = NOTHING
    requested: Mapping[str, int] = field(default_factory=dict)

    def free_devices(self, resource: str) -> int:
        """How many devices of a class a pod could still have here."""
        own = (
            [one for one in self.topology.devices if one.resource == resource and one.healthy] if self.topology else ()
        )
        taken = sum(one.allocated for one in own)
        return max(0, len(own) - max(taken, self.requested.get(resource, 0)))


class State(IntEnum):
    """What a node has of a dataset that a pod wants."""

    MISSING = 0
    OLD = 1  # a version that is not the wanted one, used by nobody: its update may begin
    OLD_IN_USE = 2
    WHOLE = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """A dataset that a pod asks for. `version` is the digest it is to have, empty if nobody knows; `size` what that
    will take on a disk, 0 bytes if nobody knows.
    """

    key: Key
    version: str = ""
    bytes: int = UNKNOWN_BYTES
    size: Space = NOTHING

    @property
    def name(self) -> str:
        """What the pod calls it."""
        return self.key[1]


class Holding(NamedTuple):
    """What a node has of a dataset. `present`: bytes of the wanted version that need not come any more; `placed`:
    whether it takes no more room, being here or promised already.
    """

    state: State
    present: int
    placed: bool


def holding(node: NodeFacts, wanted: Wanted) -> Holding:
    """What the node has of it. An unknown version is any version; what is on its way is there in part."""
    versions = node.cache.held.get(wanted.key, ()) if node.cache else ()
    if any(one.ready and wanted.version in ("", one.version) for one in versions):
        return Holding(State.WHOLE, wanted.bytes, placed=True)
    coming = [one.present for one in versions if not one.ready and one.version in ("", wanted.version)]
    present = min(wanted.bytes, max(coming, default=0))
    old = [one for one in versions if one.ready]
    if not old:
        promised = bool(coming) or (not versions and wanted.key in node.users)
        return Holding(State.MISSING, present, promised)
    return Holding(State.OLD_IN_USE if any(one.in_use for one in old) else State.OLD, present, bool(coming))


@dataclass(frozen=True, slots=True)
class Container:
    """A container's requests and limits: cpu in thousandths, memory in bytes, devices by number."""

    name: str
    requests: Mapping[str, int]
    limits: Mapping[str, int]
    is_sidecar: bool = False


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod, as far as it concerns us. `references`: the datasets of its annotation and their versions, or None each.
    `problem`: why its annotation cannot be understood. `waits`: it cannot start without its data.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    over: bool = False
    references: tuple[tuple[str, str | None], ...] = ()
    problem: str = ""
    waits: bool = True
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)  # extended resources, of all containers together
    decision: str = ""  # the name of its job's RailDecision


class Taint(NamedTuple):
    """A taint that keeps pods away which do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Host:
    """A Node: what says which pods it takes."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """A Dataset or ClusterDataset. `version` is what its source was last seen to have; bytes None: nobody knows."""

    key: Key
    version: str = ""
    bytes: int | None = None
    files: int = 0


@dataclass(frozen=True)
class Needs:
    """What a pod needs of its node. `devices`: how many of each class that some node has."""

    pod: PodFacts
    wanted: tuple[Wanted, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)


class Judgement(NamedTuple):
    """What a term makes of one node: the raw value, and why in a sentence."""

    raw: float
    why: str
