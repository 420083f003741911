"""A case: a node and a pod, as the JSON that the Go program reads and as what `predict` takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_topology.predict import (
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
from gpu_topology.predict.hints import mask_of

Document = Mapping[str, Any]  # as case.go describes it


@dataclass(frozen=True)
class Case:
    """What `predict` is given."""

    policy: Policy
    options: Options
    scope: Scope
    pod: Pod
    node: Node

    def verdict(self) -> Verdict:
        """What we say."""
        return predict(self.policy, self.options, self.scope, self.pod, self.node)


def read_case(document: Document) -> Case:
    """From the JSON of a case."""
    options = document["options"]
    return Case(
        policy=Policy(document["policy"]),
        options=Options(
            prefer_closest_numa_nodes=options.get("prefer-closest-numa-nodes") == "true",
            max_allowable_numa_nodes=int(options.get("max-allowable-numa-nodes", "8")),
        ),
        scope=Scope(document["scope"]),
        pod=_pod(document["pod"]),
        node=_node(document),
    )


def _node(document: Document) -> Node:
    nodes = document["numa_nodes"]
    numbers = [node["id"] for node in nodes]
    return Node(
        numa_nodes=tuple(numbers),
        cpus=_cpus(document["cpus"], nodes) if document["cpus"] else None,
        memory=_memory(document["memory"]) if document["memory"] else None,
        devices={name: tuple(map(_device, devices)) for name, devices in document["devices"].items()},
        distances={node["id"]: dict(zip(numbers, node["distances"], strict=True)) for node in nodes},
        allocatable=document["allocatable"],
        requested=document["requested"],
    )


def _cpus(document: Document, nodes: list[Document]) -> CpuFacts:
    layout = CpuLayout(
        tuple(
            PlacedCpu(first + thread * row["stride"], numa_node=node["id"], socket=row["socket"], core=first)
            for node in nodes
            for row in node["cores"]
            for first in range(row["first"], row["first"] + row["count"] * row["step"], row["step"])
            for thread in range(row["threads"])
        )
    )
    return CpuFacts(
        layout=layout,
        free=mask_of(read_list(document["free"])),
        reserved=mask_of(read_list(document["reserved"])),
        options=frozenset(name for name, value in document["options"].items() if value == "true"),
    )


def read_list(text: str) -> list[int]:
    """The numbers of a list as 0-3,8."""
    ends = [part.partition("-") for part in text.split(",") if part]
    return [number for first, _, last in ends for number in range(int(first), int(last or first) + 1)]


def _memory(document: Document) -> dict[int, MemoryZone]:
    return {
        int(node): MemoryZone(zone["allocatable"], zone["free"], zone["assignments"], tuple(zone["group"]))
        for node, zone in document.items()
    }


def _device(document: Document) -> PluginDevice:
    near = None if document["numa"] is None else tuple(document["numa"])
    return PluginDevice(near, is_healthy=document["healthy"], is_allocated=document["allocated"])


def _pod(document: Document) -> Pod:
    return Pod(
        containers=tuple(map(_container, document["containers"])),
        init_containers=tuple(map(_container, document.get("init_containers", ()))),
        requests=document.get("requests", {}),
        limits=document.get("limits", {}),
        overhead=document.get("overhead", {}),
    )


def _container(document: Document) -> Container:
    return Container(document["name"], document["requests"], document["limits"], document.get("sidecar", False))
