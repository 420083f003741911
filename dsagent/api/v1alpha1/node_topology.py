"""NodeTopology: what one node's device plugin knows of GPUs, network cards, NUMA nodes and kubelet's policies."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from dsagent.api.v1alpha1.meta import AGE, Column, Condition, Count, Kind, KubeModel, ObjectMeta
from dsagent.contract import API_VERSION

MAX_DEVICES = 1024

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
DeviceId = Annotated[str, Field(min_length=1, max_length=253)]


class RailStatus(KubeModel):
    """A RoCE subnet on this node."""

    subnet: Annotated[str, Field(description="Its address and prefix, such as 10.1.0.0/24.", max_length=64)]
    number: Annotated[
        Count | None, Field(description="The number that the whole cluster knows it by; none before it has one.")
    ] = None
    resource: Annotated[
        str, Field(description="The extended resource of its GPUs, such as dsagent.io/gpu-roce1.", max_length=317)
    ] = ""
    nics: Annotated[Sequence[str], Field(description="Its network cards.", max_length=256)] = ()


class TopologyDevice(KubeModel):
    """A device as kubelet hands it out."""

    id: Annotated[DeviceId, Field(description="Its id for kubelet, such as gpu0/mlx5_4.")]
    resource: Annotated[str, Field(description="Its class, such as dsagent.io/gpu-roce1.", max_length=317)]
    numa_node: Annotated[int, Field(description="Its NUMA node; -1 is unknown.", ge=-1, le=1 << 30)] = -1
    healthy: Annotated[bool, Field(description="Whether it can be handed out.")] = True
    allocated: Annotated[bool, Field(description="Whether a container has it.")] = False
    scores: Annotated[
        Mapping[str, Count],
        Field(description="How near each other device is, by its id; higher is nearer.", max_length=MAX_DEVICES),
    ] = {}


class TopologyZone(KubeModel):
    """A NUMA node."""

    id: Annotated[Count, Field(description="Its number.")]
    socket: Annotated[int, Field(description="The processor socket of its CPUs; -1 is unknown.", ge=-1)] = -1
    cpus: Annotated[str, Field(description="Its logical CPUs, as 0-15,32-47.", max_length=4096)] = ""
    free_cpus: Annotated[
        str, Field(description="Those that no container has for itself and that are not reserved.", max_length=4096)
    ] = ""
    cores: Annotated[
        Sequence[Annotated[str, Field(max_length=256)]],
        Field(description="The logical CPUs of each physical core, as 0,32.", max_length=4096),
    ] = ()
    memory: Annotated[Count, Field(description="Bytes of memory.")] = 0
    free_memory: Annotated[
        Count, Field(description="Bytes that the memory manager can still hand out; all of them without one.")
    ] = 0
    distances: Annotated[
        Mapping[str, Count],
        Field(description="How far each NUMA node is, by its number; 10 is this one.", max_length=1024),
    ] = {}


class KubeletPolicies(KubeModel):
    """What kubelet decides by when it admits a pod, from its configuration."""

    topology_manager: Annotated[TopologyPolicy, Field(description="Its topologyManagerPolicy.")] = "none"
    scope: Annotated[Literal["container", "pod"], Field(description="Its topologyManagerScope.")] = "container"
    topology_manager_options: Annotated[
        Mapping[str, str], Field(description="Its topologyManagerPolicyOptions.", max_length=32)
    ] = {}
    cpu_manager: Annotated[Literal["none", "static"], Field(description="Its cpuManagerPolicy.")] = "none"
    cpu_manager_options: Annotated[
        Mapping[str, str], Field(description="Its cpuManagerPolicyOptions.", max_length=32)
    ] = {}
    reserved_cpus: Annotated[
        str, Field(description="The logical CPUs that are kept from containers, as 0-1.", max_length=4096)
    ] = ""
    memory_manager: Annotated[Literal["None", "Static"], Field(description="Its memoryManagerPolicy.")] = "None"


class NodeTopologyStatus(KubeModel):
    """What the node's device plugin knows."""

    kubelet: Annotated[
        KubeletPolicies | None, Field(description="Kubelet's policies; without them nothing is foretold of admission.")
    ] = None
    zones: Annotated[Sequence[TopologyZone], Field(description="NUMA nodes, by number.", max_length=1024)] = ()
    rails: Annotated[Sequence[RailStatus], Field(description="RoCE subnets, by number.", max_length=256)] = ()
    devices: Annotated[
        Sequence[TopologyDevice], Field(description="Devices of all classes, by id.", max_length=MAX_DEVICES)
    ] = ()
    device_count: Annotated[Count, Field(description="How many devices there are.")] = 0
    free_count: Annotated[Count, Field(description="How many of them are healthy and not allocated.")] = 0
    conditions: Annotated[
        Sequence[Condition],
        Field(
            description="Ready: the device plugin serves.",
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


NODE_TOPOLOGY = Kind(
    "NodeTopology",
    "nodetopologies",
    "ntopo",
    namespaced=False,
    columns=(
        Column("Devices", "integer", ".status.deviceCount", "How many devices there are."),
        Column("Free", "integer", ".status.freeCount", "How many of them are healthy and not allocated."),
        Column("Policy", "string", ".status.kubelet.topologyManager", "Kubelet's topologyManagerPolicy."),
        AGE,
    ),
)


class NodeTopology(KubeModel):
    """GPUs, network cards, NUMA nodes and kubelet's policies of one node. Its name is the node's, whose device plugin
    alone writes it.
    """

    api_version: Literal["dsagent.io/v1alpha1"] = API_VERSION
    kind: Literal["NodeTopology"] = "NodeTopology"
    metadata: ObjectMeta
    status: NodeTopologyStatus | None = None
