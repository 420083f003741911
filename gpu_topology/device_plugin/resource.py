"""What a backend tells of one resource, and what it hands out: the values between kubelet's messages and the rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpu_topology.api import UNKNOWN_NODE


@dataclass(frozen=True)
class Offer:
    """A device as kubelet counts it; one that is not healthy is not handed out, and stays with a pod that has it."""

    id: str
    healthy: bool
    numa_node: int = UNKNOWN_NODE


@dataclass(frozen=True)
class Mount:
    """A file of the node inside a container, for reading."""

    inside: str
    host: str


@dataclass(frozen=True)
class Grant:
    """What a container gets with its devices."""

    variables: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    nodes: tuple[str, ...] = ()  # device nodes, at the same path inside, for reading and writing
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()  # KIND=NAME


class Resource(Protocol):
    """One resource as it was at one look; the next look makes another."""

    @property
    def name(self) -> str:
        """As pods ask for it: dsagent.io/gpu-roce1."""
        ...

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All devices that were ever seen, in their order."""
        ...

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """The `size` devices to hand out together, `required` among them; whatever is asked, never an error."""
        ...

    def grant(self, ids: Sequence[str]) -> Grant:
        """What a container with these devices gets. Raises TopologyError."""
        ...


class Backend(Protocol):
    """Something that has resources."""

    def look(self) -> Sequence[Resource]:
        """The resources as they are now; one that was there once is always there. Raises TopologyError."""
        ...


def first_ones(available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
    """A set of devices where nothing makes one better than another: the required ones, then in order."""
    return tuple(dict.fromkeys((*required, *available)))[: max(size, 0)]
