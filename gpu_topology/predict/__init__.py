"""What kubelet 1.34 would say of a pod on a node with NUMA nodes: a pure function of facts.

The Topology Manager asks the device, CPU and memory managers where each container would fit (`hints`), takes the best
set of NUMA nodes that suits them all (`merge`), and has them allocate; then the scheduler's check is repeated
(`admission`). It is checked against kubelet's own code: `python -m tools.kubelet_oracle`.
"""

from gpu_topology.predict.admission import predict
from gpu_topology.predict.facts import (
    ADMIT,
    OUT_OF,
    SMT_ALIGNMENT_ERROR,
    TOPOLOGY_AFFINITY_ERROR,
    UNEXPECTED_ADMISSION_ERROR,
    UNKNOWN,
    Affinity,
    Container,
    CpuFacts,
    CpuLayout,
    MemoryZone,
    Node,
    Options,
    PlacedCpu,
    PluginDevice,
    Pod,
    Policy,
    Scope,
    Verdict,
)

__all__ = [
    "ADMIT",
    "OUT_OF",
    "SMT_ALIGNMENT_ERROR",
    "TOPOLOGY_AFFINITY_ERROR",
    "UNEXPECTED_ADMISSION_ERROR",
    "UNKNOWN",
    "Affinity",
    "Container",
    "CpuFacts",
    "CpuLayout",
    "MemoryZone",
    "Node",
    "Options",
    "PlacedCpu",
    "PluginDevice",
    "Pod",
    "Policy",
    "Scope",
    "Verdict",
    "predict",
]
