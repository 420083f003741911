"""Kubelet's verdicts on pods whose answer can be worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_topology.predict import (
    ADMIT,
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
    predict,
)
from tools.kubelet_oracle.cases import read_case
from tools.kubelet_oracle.oracle import agrees, read_answer

GPU = "nvidia.com/gpu"
GIB = 1 << 30
# Two sockets of eight cores with two threads: CPUs 0-7 and 16-23 are on node 0.
LAYOUT = CpuLayout(
    tuple(PlacedCpu(cpu, numa_node=cpu // 8 % 2, socket=cpu // 8 % 2, core=cpu % 16) for cpu in range(32))
)
CPUS = CpuFacts(LAYOUT, free=LAYOUT.everything & ~0x10001, reserved=0x10001)
GPUS = tuple(PluginDevice((index // 4,)) for index in range(8))
RECORDED = Path(__file__).parents[2] / "kubelet" / "cases.jsonl"  # by tools.kubelet_oracle --record
NODE = Node(numa_nodes=(0, 1), cpus=CPUS, devices={GPU: GPUS})


def container(name: str = "main", *, gpus: int = 0, cpus: float = 2, sidecar: bool = False) -> Container:
    """A container of a Guaranteed pod."""
    resources = {"cpu": int(cpus * 1000), "memory": GIB} | ({GPU: gpus} if gpus else {})
    return Container(name, resources, resources, is_sidecar=sidecar)


def judge(
    pod: Pod, node: Node = NODE, policy: Policy = Policy.SINGLE_NUMA_NODE, scope: Scope = Scope.CONTAINER
) -> Verdict:
    """The verdict with default options."""
    return predict(policy, Options(), scope, pod, node)


def used(*indices: int) -> Node:
    """NODE with some GPUs allocated."""
    devices = tuple(replace(gpu, is_allocated=index in indices) for index, gpu in enumerate(GPUS))
    return replace(NODE, devices={GPU: devices})


def test_what_fits_on_one_node_goes_to_the_lower() -> None:
    """With its place said for each container."""
    assert judge(Pod((container(gpus=2),))).affinities == {"main": Affinity((0,), is_preferred=True)}
    assert judge(Pod((container(gpus=2),)), used(0, 1, 2)).affinities == {"main": Affinity((1,), is_preferred=True)}


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy.NONE, ADMIT),
        (Policy.BEST_EFFORT, ADMIT),
        (Policy.RESTRICTED, TOPOLOGY_AFFINITY_ERROR),
        (Policy.SINGLE_NUMA_NODE, TOPOLOGY_AFFINITY_ERROR),
    ],
)
def test_two_gpus_of_two_nodes(policy: Policy, reason: str) -> None:
    """Two would fit on one node if it were empty, so the stricter policies refuse two that lie apart."""
    verdict = judge(Pod((container(gpus=2),)), used(0, 1, 2, 4, 5, 6), policy)
    assert verdict.reason == reason
    assert verdict.is_refusal == (reason != ADMIT)


def test_width_comes_from_all_devices() -> None:
    """Five never fit on one node: restricted takes two nodes, single-numa-node refuses, though all are free."""
    pod = Pod((container(gpus=5, cpus=0.5),))
    assert judge(pod, policy=Policy.RESTRICTED).affinities["main"] == Affinity((0, 1), is_preferred=True)
    assert judge(pod).reason == TOPOLOGY_AFFINITY_ERROR


def test_unhealthy_devices_count_for_the_width_only() -> None:
    """As device plugins' devices that are gone do."""
    sick = replace(NODE, devices={GPU: tuple(replace(gpu, is_healthy=False) for gpu in GPUS[:3]) + GPUS[3:6]})
    assert judge(Pod((container(gpus=3),)), sick).reason == TOPOLOGY_AFFINITY_ERROR
    none = replace(NODE, devices={GPU: tuple(replace(gpu, is_healthy=False) for gpu in GPUS)})
    assert judge(Pod((container(gpus=1),)), none, Policy.NONE).reason == UNEXPECTED_ADMISSION_ERROR


def test_cpus_and_devices_have_to_agree() -> None:
    """GPUs free on one node only, CPUs on the other."""
    node = replace(used(0, 1, 2, 3), cpus=replace(CPUS, free=LAYOUT.by_node[0]))
    verdict = judge(Pod((container(gpus=1),)), node)
    assert verdict.reason == TOPOLOGY_AFFINITY_ERROR
    assert f"{GPU} fits on 1" in verdict.why
    assert "cpu fits on 0" in verdict.why
    shared = Pod((container(gpus=1, cpus=1.5),))  # no CPUs of its own
    assert judge(shared, node).affinities == {"main": Affinity((1,), is_preferred=True)}


def test_half_cores() -> None:
    """full-pcpus-only wants whole cores, after the Topology Manager has agreed."""
    node = replace(NODE, cpus=replace(CPUS, options=frozenset({"full-pcpus-only"})))
    assert judge(Pod((container(cpus=3),)), node, Policy.NONE).reason == SMT_ALIGNMENT_ERROR
    assert judge(Pod((container(cpus=4),)), node, Policy.NONE).reason == ADMIT


def test_init_containers_lend_and_sidecars_keep() -> None:
    """Four GPUs of one node for an init container are there for the main one; a sidecar's are not."""
    node = used(4, 5, 6, 7)
    lent = Pod((container(gpus=4),), (container("init", gpus=4),))
    assert judge(lent, node).reason == ADMIT
    kept = Pod((container(gpus=4),), (container("proxy", gpus=1, sidecar=True),))
    assert judge(kept, node).reason == TOPOLOGY_AFFINITY_ERROR
    assert judge(kept, node, scope=Scope.POD).reason == TOPOLOGY_AFFINITY_ERROR


def test_memory_of_a_group_is_not_for_one() -> None:
    """A node in a group of two has no place for a container of its own."""
    free = {"memory": 64 * GIB}
    apart = {0: MemoryZone(free, free), 1: MemoryZone(free, free)}
    grouped = {node: MemoryZone(free, free, 1, (0, 1)) for node in (0, 1)}
    pod = Pod((container(),))
    assert judge(pod, replace(NODE, memory=apart), Policy.RESTRICTED).reason == ADMIT
    assert judge(pod, replace(NODE, memory=grouped), Policy.RESTRICTED).reason == TOPOLOGY_AFFINITY_ERROR


def test_out_of_what_the_scheduler_counts() -> None:
    """After everything else is found good."""
    node = replace(NODE, allocatable={"cpu": 30_000, "pods": 110}, requested={"cpu": 29_000, "pods": 3})
    assert judge(Pod((container(),)), node).reason == "OutOfcpu"
    full = replace(NODE, allocatable={"pods": 3}, requested={"pods": 3})
    assert judge(Pod((container(),)), full).reason == "OutOfpods"


def test_unknown_is_no_refusal() -> None:
    """Whatever it is that is not known."""
    pod, node = Pod((container(gpus=5),)), NODE
    for verdict in (
        judge(pod, replace(node, unknown={"cpu": "kubelet's state was not read"})),
        judge(pod, replace(node, cpus=replace(CPUS, options=frozenset({"of-tomorrow"})))),
        predict(Policy.RESTRICTED, Options(prefer_closest_numa_nodes=True), Scope.POD, pod, node),
    ):
        assert verdict.reason == UNKNOWN
        assert not verdict.is_refusal
        assert verdict.why


def test_chance_is_said() -> None:
    """Three of four GPUs are taken from two nodes: whether the last is where CPUs are free, nobody knows."""
    devices = tuple(PluginDevice((index // 2,)) for index in range(4))
    node = replace(NODE, devices={GPU: devices}, cpus=replace(CPUS, free=LAYOUT.by_node[0]))
    pod = Pod((container("a", gpus=3, cpus=0.5), container("b", gpus=1)))
    verdict = judge(pod, node, Policy.RESTRICTED)
    assert verdict.reason == UNKNOWN
    assert "depends on which devices" in verdict.why
    assert judge(pod, node, Policy.BEST_EFFORT).reason == ADMIT
    last = judge(Pod((pod.containers[0], container("b", gpus=1, cpus=0.5))), node, Policy.RESTRICTED)
    assert last.affinities == {"a": Affinity((0, 1), is_preferred=True), "b": None}


def test_as_kubelet_said() -> None:
    """What kubelet 1.34's own managers answered to random cases."""
    recorded = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    wrong = []
    unknown = 0
    for number, one in enumerate(recorded):
        verdict, answer = read_case(one["case"]).verdict(), read_answer(one["answer"])
        if verdict.reason == UNKNOWN:
            unknown += 1
        elif not agrees(verdict, answer):
            wrong.append((number, verdict, answer))
    assert not wrong
    assert unknown < len(recorded) / 50
    assert {one["answer"]["reason"] for one in recorded} >= {
        *(ADMIT, TOPOLOGY_AFFINITY_ERROR, UNEXPECTED_ADMISSION_ERROR, SMT_ALIGNMENT_ERROR),
        *("OutOfcpu", "OutOfpods", "OutOfhugepages-1Gi"),
    }
