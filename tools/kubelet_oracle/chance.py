"""Random cases: machines of up to 8 NUMA nodes, 128 CPUs and 16 devices, partly in use, and pods of all kinds."""

from collections.abc import Iterable
from random import Random
from typing import Any

from tools.kubelet_oracle.cases import Document

GIB = 1 << 30
MOST_CPUS = 128
MOST_DEVICES = 16
MOST_NODES = 8
MOST_BITS = 16  # of all masks that kubelet combines
HUGE = "hugepages-1Gi"
RESOURCES = ("nvidia.com/gpu", "dsagent.io/gpu-roce1", "example.com/card")
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
# Sets of options with which kubelet starts.
CPU_OPTIONS = (
    (),
    (),
    ("full-pcpus-only",),
    ("distribute-cpus-across-numa",),
    ("full-pcpus-only", "distribute-cpus-across-numa"),
    ("align-by-socket",),
    ("full-pcpus-only", "align-by-socket"),
    ("distribute-cpus-across-cores",),
    ("strict-cpu-reservation",),
    ("full-pcpus-only", "strict-cpu-reservation"),
    ("prefer-align-cpus-by-uncorecache",),
)


def make_case(chance: Random) -> Document:
    """One case, always the same for the same state of `chance`."""
    policy = chance.choice(POLICIES)
    nodes = _nodes(chance)
    numbers = [node["id"] for node in nodes]
    cpus = _cpus(chance, nodes, policy) if chance.random() < 0.85 else None
    # Kubelet tries every combination of hints: with eight nodes and three resources that takes it seconds.
    resources = MOST_BITS // len(nodes) - 1
    memory = _memory(chance, numbers) if resources > 2 and chance.random() < 0.4 else None
    devices = _devices(chance, numbers, resources - 2 if memory else resources)
    options = {}
    if chance.random() < 0.3:
        options["prefer-closest-numa-nodes"] = "true"
    if chance.random() < 0.1:
        options["max-allowable-numa-nodes"] = "16"
    pod = _pod(chance, nodes, devices, with_huge=memory is not None)
    return {
        "policy": policy,
        "scope": chance.choice(("container", "pod")),
        "options": options,
        "numa_nodes": nodes,
        "cpus": cpus,
        "memory": memory,
        "devices": devices,
        **_room(chance, nodes, devices, memory),
        "pod": pod,
    }


def _nodes(chance: Random) -> list[dict[str, Any]]:
    sockets, per_socket = chance.choice(
        ((1, 1), (1, 2), (2, 1), (2, 1), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (1, 4))
    )
    count = sockets * per_socket
    sockets_in_node = 2 if per_socket == 1 and chance.random() < 0.15 else 1
    threads = chance.choice((1, 2, 2))
    most = MOST_CPUS // (count * threads * sockets_in_node)
    cores = chance.randint(1, chance.choice((2, 4, most)) if most > 4 else most)
    units = count * sockets_in_node
    neighbours = chance.random() < 0.3  # CPUs of a core have neighbouring numbers
    in_turn = chance.random() < 0.3  # cores are numbered over the nodes in turn, as some firmware does
    rows = []
    for unit in range(units):
        first, step = (unit, units) if in_turn else (unit * cores, 1)
        scale = threads if neighbours else 1
        stride = 1 if neighbours else units * cores
        rows.append(
            (unit, {"first": first * scale, "count": cores, "step": step * scale, "threads": threads, "stride": stride})
        )
    bare = chance.randint(1, MOST_NODES - count) if count < MOST_NODES and chance.random() < 0.1 else 0
    apart = chance.choice((None, 12, 17, 21, 32))
    nodes: list[dict[str, Any]] = []
    for number in range(count + bare):
        own = [
            {"socket": unit if sockets_in_node > 1 else unit // per_socket, **row}
            for unit, row in rows
            if unit // sockets_in_node == number
        ]
        nodes.append({"id": number, "cores": own})
    far = {(a, b): apart or chance.choice((11, 12, 20, 21, 32)) for a in range(len(nodes)) for b in range(a)}
    for node in nodes:
        here = node["id"]
        node["distances"] = [
            10 if other == here else far[max(here, other), min(here, other)] for other in range(len(nodes))
        ]
    return nodes


def _cpu_numbers(nodes: Iterable[Document]) -> dict[int, list[int]]:
    """Each core's CPUs, by the lowest."""
    return {
        first: [first + thread * row["stride"] for thread in range(row["threads"])]
        for node in nodes
        for row in node["cores"]
        for first in range(row["first"], row["first"] + row["count"] * row["step"], row["step"])
    }


def _cpus(chance: Random, nodes: list[dict[str, Any]], policy: str) -> Document:
    cores = _cpu_numbers(nodes)
    everything = sorted(cpu for own in cores.values() for cpu in own)
    reserved = set(cores[min(cores)][: chance.randint(1, 2)])
    if chance.random() < 0.1:
        reserved |= set(chance.sample(everything, min(2, len(everything))))
    free = set(everything) - reserved
    used = chance.choice((0, 0, 0.2, 0.5, 0.8))
    for own in cores.values():
        if chance.random() < used:
            free -= set(own if chance.random() < 0.8 else own[:1])
    with_cpus = sum(1 for node in nodes if node["cores"])
    sockets = len({row["socket"] for node in nodes for row in node["cores"]})
    options = chance.choice(CPU_OPTIONS)
    if "align-by-socket" in options and (policy == "single-numa-node" or sockets > with_cpus):
        options = ()
    return {"free": _text(free), "reserved": _text(reserved), "options": dict.fromkeys(options, "true")}


def _text(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _memory(chance: Random, nodes: list[int]) -> Document:
    size = chance.choice((8, 16, 64)) * GIB
    huge = chance.choice((0, 0, 4)) * GIB
    group: set[int] = set()
    if len(nodes) > 1 and chance.random() < 0.3:
        group = set(chance.sample(nodes, chance.randint(2, min(3, len(nodes)))))
    zones = {}
    for node in nodes:
        allocatable = {"memory": size, HUGE: huge}
        used = chance.choice((0, 0, 1, 2, 4, 8)) if node not in group else chance.choice((1, 2))
        free = {"memory": max(0, size - used * GIB), HUGE: max(0, huge - chance.choice((0, 1)) * GIB) if used else huge}
        zones[str(node)] = {
            "allocatable": allocatable,
            "free": free,
            "assignments": used,
            "group": sorted(group) if node in group else [node],
        }
    return zones


def _devices(chance: Random, nodes: list[int], most: int) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = {}
    for name in chance.sample(RESOURCES, min(most, chance.choice((1, 1, 1, 2, 2, 3)))):
        count = chance.choice((1, 2, 4, 8, 8, MOST_DEVICES))
        style = chance.choice(("blocks", "blocks", "blocks", "any", "one", "mixed", "none"))
        used, ill = chance.choice((0, 0.2, 0.5)), chance.choice((0, 0, 0.15, 1 if chance.random() < 0.1 else 0))
        found[name] = [
            {
                "numa": _place(chance, style, nodes, index, count),
                "healthy": chance.random() >= ill,
                "allocated": chance.random() < used,
            }
            for index in range(count)
        ]
    return found


def _place(chance: Random, style: str, nodes: list[int], index: int, count: int) -> list[int] | None:
    if style == "blocks":
        return [nodes[index * len(nodes) // count]]
    if style == "any":
        return [chance.choice(nodes)]
    if style == "one":
        return [nodes[0]]
    if style == "mixed":
        kinds: tuple[list[int] | None, ...] = (
            None,
            [],
            chance.sample(nodes, min(2, len(nodes))),
            [chance.choice(nodes)],
        )
        return chance.choice(kinds)
    return None


def _pod(
    chance: Random, nodes: list[dict[str, Any]], devices: dict[str, list[Document]], *, with_huge: bool
) -> Document:
    kind = chance.choice(("guaranteed", "guaranteed", "guaranteed", "guaranteed", "burstable", "best-effort"))
    cpus = sum(len(own) for own in _cpu_numbers(nodes).values())

    def container(name: str) -> dict[str, Any]:
        resources = {resource: _some(chance, len(own)) for resource, own in devices.items() if chance.random() < 0.6}
        if chance.random() < 0.03:
            resources["example.com/nobody-has-it"] = 1
        limits, requests = dict(resources), dict(resources)
        if kind != "best-effort":
            own = {"cpu": _cpu(chance, cpus), "memory": chance.choice((1, 1, 2, 3, 6, 12)) * GIB}
            if with_huge and chance.random() < 0.15:
                own[HUGE] = chance.choice((1, 2)) * GIB
            requests |= own
            if kind == "guaranteed":
                limits |= own
        return {"name": name, "requests": requests, "limits": limits}

    early = [
        container(f"init{index}") | {"sidecar": chance.random() < 0.4}
        for index in range(chance.choice((0, 0, 0, 1, 1, 2, 3)))
    ]
    pod: dict[str, Any] = {
        "containers": [container(f"c{index}") for index in range(chance.choice((1, 1, 1, 2, 2, 3)))],
        "init_containers": early,
    }
    if chance.random() < 0.03:
        own = {"cpu": 2000, "memory": 2 * GIB}
        pod |= {"requests": own, "limits": own}
    if chance.random() < 0.05:
        pod["overhead"] = {"cpu": 250, "memory": GIB // 4}
    return pod


def _cpu(chance: Random, cpus: int) -> int:
    if chance.random() < 0.2:
        return chance.choice((100, 500, 1500, 2500))
    return 1000 * chance.choice((1, 2, 2, 4, chance.randint(1, max(1, cpus // 2)), chance.randint(1, max(1, cpus))))


def _some(chance: Random, count: int) -> int:
    return chance.choice((1, 1, 2, 4, chance.randint(0, count)))


def _room(
    chance: Random, nodes: list[dict[str, Any]], devices: dict[str, list[Document]], memory: Document | None
) -> dict[str, dict[str, int]]:
    cpus = 1000 * sum(len(own) for own in _cpu_numbers(nodes).values())
    busy = chance.choice((0, 0, 0, 0, 0.1, 0.3))
    total = 64 * GIB * len(nodes)
    allocatable = {"cpu": cpus, "memory": total, "pods": 110}
    requested = {"cpu": int(cpus * busy), "memory": int(total * busy), "pods": chance.choice((1,) * 15 + (110,))}
    if memory:
        allocatable[HUGE] = sum(zone["allocatable"][HUGE] for zone in memory.values())
    for name, own in devices.items():
        allocatable[name] = sum(device["healthy"] for device in own)
        requested[name] = sum(device["allocated"] for device in own)
    return {"allocatable": allocatable, "requested": requested}
