"""What a node tells the cluster: kubelet's policies, what containers have, CPUs as text, numbers of rails."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpu_topology.api import Cpu, Machine, NumaNode, Topology
from gpu_topology.cluster.numbers import numbers_of
from gpu_topology.cluster.policies import Policies, policies_of, read_file
from gpu_topology.cluster.status import MOST_DEVICES, cpu_text, status_of
from gpu_topology.cluster.usage import Usage, usage_of
from gpu_topology.device_plugin import kubelet_pb2 as messages
from gpu_topology.device_plugin.shares import Shared, Whole
from gpu_topology.errors import BadFile

GIB = 1 << 30


@pytest.mark.parametrize(
    ("configuration", "policies"),
    [
        ({}, Policies()),
        (
            {
                "topologyManagerPolicy": "restricted",
                "topologyManagerScope": "pod",
                "cpuManagerPolicy": "static",
                "memoryManagerPolicy": "Static",
                "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
                "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            },
            Policies(
                *("restricted", "pod", "static", "Static"),
                topology_manager_options=(("prefer-closest-numa-nodes", "true"),),
                cpu_manager_options=(("full-pcpus-only", "true"),),
            ),
        ),
    ],
)
def test_policies(configuration: Mapping[str, Any], policies: Policies) -> None:
    assert policies_of(configuration) == policies


def test_a_policy_of_tomorrow_is_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of-tomorrow"):
        policies_of({"topologyManagerPolicy": "of-tomorrow"})
    path = tmp_path / "config.yaml"
    path.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\n")
    assert read_file(path).cpu_manager == "static"
    for text in ("kind: Pod\n", "kind: KubeletConfiguration\ncpuManagerPolicy: of-tomorrow\n", "{"):
        path.write_text(text)
        with pytest.raises(BadFile, match=r"config\.yaml"):
            read_file(path)


@pytest.mark.parametrize(
    ("cpus", "text"), [((), ""), ((3,), "3"), ((2, 0, 1, 8, 9, 11), "0-2,8-9,11"), (range(64), "0-63")]
)
def test_cpus_as_text(cpus: tuple[int, ...], text: str) -> None:
    assert cpu_text(cpus) == text


def test_what_containers_have() -> None:
    def block(size: int, *nodes: int, kind: str = "memory") -> messages.ContainerMemory:
        topology = messages.TopologyInfo(nodes=[messages.NumaNode(id=node) for node in nodes])
        return messages.ContainerMemory(memory_type=kind, size=size, topology=topology)

    can = messages.AllocatableResources(
        cpu_ids=range(1, 8), memory=[block(8 * GIB, 0), block(6 * GIB, 1), block(GIB, 0, kind="hugepages-1Gi")]
    )
    first = messages.ContainerResources(
        devices=[messages.ContainerDevices(resource_name="a/b", device_ids=[one]) for one in ("x", "y")],
        cpu_ids=[1, 2],
        memory=[block(10 * GIB, 0, 1)],
    )
    pods = [
        messages.PodResources(containers=[first]),
        messages.PodResources(containers=[messages.ContainerResources()]),
    ]
    assert usage_of(can, messages.ListPodResources(pods=pods)) == Usage(
        {"a/b": frozenset("xy")}, frozenset(range(1, 8)), frozenset(range(3, 8)), {0: 0, 1: 4 * GIB}
    )


def test_a_machine_without_numa_is_one_node_as_kubelet_sees_it() -> None:
    cpus = tuple(Cpu(cpu, numa_node=-1, package=0, core=cpu % 2) for cpu in range(4))
    status = status_of(Topology(Machine((), (), (), cpus), {}, ()), (), None, Policies())
    (zone,) = status["zones"]
    assert (zone["id"], zone["socket"], zone["cpus"], zone["cores"]) == (0, 0, "0-3", ["0,2", "1,3"])
    assert "kubelet" not in status


def test_a_node_without_cpus_has_no_socket_and_cores_of_unknown_cpus_are_their_own() -> None:
    cpus = (Cpu(0, numa_node=0, package=-1, core=-1), Cpu(1, numa_node=0, package=-1, core=-1))
    nodes = (NumaNode(0, (0, 1), GIB, {0: 10, 1: 20}), NumaNode(1, (), GIB, {0: 20, 1: 10}))
    zones = status_of(Topology(Machine((), (), nodes, cpus), {}, ()), (), None, None)["zones"]
    assert [(zone["socket"], zone["cores"]) for zone in zones] == [(-1, ["0", "1"]), (-1, [])]


def test_a_resource_that_does_not_fit_is_left_out_whole() -> None:
    few = Shared("a/few", "X", (Whole("d", ("/dev/null",), 8),), frozenset("d"))
    many = Shared("a/many", "X", (Whole("e", ("/dev/null",), MOST_DEVICES),), frozenset("e"))
    status = status_of(Topology(Machine((), (), (), ()), {}, ()), (many, few), None, None)
    assert {one["resource"] for one in status["devices"]} == {"a/few"}
    assert status["freeCount"] == 8


def test_numbers() -> None:
    data = {"2": "10.2.0.0/24", "10": "10.1.0.0/24", "note": "10.9.0.0/24", "11": "10.2.0.0/24"}
    assert numbers_of({"data": data}) == {"10.2.0.0/24": 2, "10.1.0.0/24": 10}
    assert numbers_of({}) == {}
