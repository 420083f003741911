"""Every machine of tests/machines: its matrix, rails, classes and the sets that are chosen on it."""

import json
from collections.abc import Iterable

import pytest

from gpu_topology.allocate import Policy, allocate, score
from gpu_topology.api import Topology
from gpu_topology.discover import NO_OVERRIDES, find_topology
from gpu_topology.links import scores
from gpu_topology.overrides import load_overrides
from gpu_topology.rails import DEFAULT_RESOURCE
from gpu_topology.recording import FILE, load_recording
from tests.machines.build import MACHINES, Built, text_of
from tests.machines.descriptions import BUILT

NAMES = sorted(path.parent.name for path in MACHINES.glob(f"*/{FILE}"))

# Of each machine, what its GPUs have to each other and to its cards, as "RELATION*TIMES …", one line for GPUs that have
# the same. X stands where a GPU meets itself.
MATRICES: dict[str, list[tuple[str, str, Iterable[int]]]] = {
    "roce-2socket": [("X PIX*3 SYS*4", "PIX*2 SYS*2", range(4)), ("SYS*4 X PIX*3", "SYS*2 PIX*2", range(4, 8))],
    "dgx-a100": [
        ("X NV12*7", "PXB*2 SYS*10", (0, 1)),
        ("X NV12*7", "SYS*2 PXB*2 SYS*8", (2, 3)),
        ("X NV12*7", "SYS*6 PXB*2 SYS*4", (4, 5)),
        ("X NV12*7", "SYS*8 PXB*2 SYS*2", (6, 7)),
    ],
    "hgx-h100": [
        *(("X NV18*7", f"NODE*{n} PIX NODE*{3 - n} SYS*4", (n,)) for n in range(4)),
        *(("X NV18*7", f"SYS*4 NODE*{n} PIX NODE*{3 - n}", (4 + n,)) for n in range(4)),
    ],
    "dgx-1-v100": [
        ("X NV1 NV1 NV2 NV2 SYS SYS SYS", "PIX PHB SYS*2", (0,)),
        ("NV1 X NV2 NV1 SYS NV2 SYS SYS", "PIX PHB SYS*2", (1,)),
        ("NV1 NV2 X NV2 SYS SYS NV1 SYS", "PHB PIX SYS*2", (2,)),
        ("NV2 NV1 NV2 X SYS SYS SYS NV1", "PHB PIX SYS*2", (3,)),
        ("NV2 SYS SYS SYS X NV1 NV1 NV2", "SYS*2 PIX PHB", (4,)),
        ("SYS NV2 SYS SYS NV1 X NV2 NV1", "SYS*2 PIX PHB", (5,)),
        ("SYS SYS NV1 SYS NV1 NV2 X NV2", "SYS*2 PHB PIX", (6,)),
        ("SYS SYS SYS NV1 NV2 NV1 NV2 X", "SYS*2 PHB PIX", (7,)),
    ],
    "dgx-2": [
        ("X NV6*15", "PIX PXB NODE*2 SYS*6", (0, 1)),
        ("X NV6*15", "PXB PIX NODE*2 SYS*6", (2, 3)),
        ("X NV6*15", "NODE*2 PIX PXB SYS*6", (4, 5)),
        ("X NV6*15", "NODE*2 PXB PIX SYS*6", (6, 7)),
        ("X NV6*15", "SYS*4 NODE*2 PIX PXB NODE*2", (8, 9)),
        ("X NV6*15", "SYS*4 NODE*2 PXB PIX NODE*2", (10, 11)),
        ("X NV6*15", "SYS*4 NODE*4 PIX PXB", (12, 13)),
        ("X NV6*15", "SYS*4 NODE*4 PXB PIX", (14, 15)),
    ],
    "azure-ndv4": [("X NV12*7", "SYS*8", range(8))],
    "gb200": [("X NV18*3", "NODE*2 SYS*2", (0, 1)), ("X NV18*3", "SYS*2 NODE*2", (2, 3))],
    "paper-4gpu": [
        ("X PIX PIX NV4", "", (0,)),
        ("PIX X PIX PIX", "", (1,)),
        ("PIX PIX X PIX", "", (2,)),
        ("NV4 PIX PIX X", "", (3,)),
    ],
    "no-gpu": [],
    "qemu-2numa": [("X PIX SYS*2", "PIX PHB SYS*2", (0, 1)), ("SYS*2 X PIX", "SYS*2 PIX PHB", (2, 3))],
}
CLASSES = {
    "roce-2socket": {
        1: ["gpu0/mlx5_4", "gpu1/mlx5_5", "gpu2/mlx5_6", "gpu3/mlx5_7"],
        2: ["gpu4/mlx5_8", "gpu5/mlx5_9", "gpu6/mlx5_10", "gpu7/mlx5_11"],
    },
    "hgx-h100": {n + 1: [f"gpu{n}/mlx5_{n}"] for n in range(8)},
    "gb200": {n + 1: [f"gpu{n}/mlx5_{n}"] for n in range(4)},
}
# The best set of four, and of four with GPU 1 in it and GPU 0 taken.
SETS = {
    "roce-2socket": ([0, 1, 2, 3], [4, 1, 2, 3]),
    "dgx-a100": ([0, 1, 2, 3], [1, 2, 3, 4]),
    "hgx-h100": ([0, 1, 2, 3], [1, 2, 3, 4]),
    "dgx-1-v100": ([0, 1, 2, 3], [1, 2, 3, 5]),
    "dgx-2": ([0, 1, 2, 3], [1, 2, 3, 4]),
    "gb200": ([0, 1, 2, 3], []),
    "paper-4gpu": ([0, 1, 2, 3], []),
}


def topology(name: str, pattern: str = DEFAULT_RESOURCE) -> Topology:
    found, _ = find_topology(load_recording(MACHINES / name), pattern=pattern)
    return found


def classes(found: Topology) -> dict[str, list[str]]:
    return {rail.resource: [device.id for device in rail.devices] for rail in found.rails}


def spelled(short: str) -> list[str]:
    return [word.partition("*")[0] for word in short.split() for _ in range(int(word.partition("*")[2] or 1))]


@pytest.mark.parametrize("machine", BUILT, ids=lambda machine: machine.name)
def test_file_is_what_the_description_makes(machine: Built) -> None:
    assert (MACHINES / machine.name / FILE).read_text() == text_of(machine), "run: python -m tests.machines.build"


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_has_its_source_and_tells_of_nobody(name: str) -> None:
    assert f"| {name} |" in (MACHINES / "README.md").read_text()
    document = json.loads((MACHINES / name / FILE).read_text())
    assert document["source"]
    assert all(facts.get("uuid", "GPU-0000").startswith("GPU-0000") for facts in document["nvml"].values())


@pytest.mark.parametrize("name", NAMES)
def test_matrix(name: str) -> None:
    found = topology(name)
    cards = [nic.name for nic in found.machine.nics]
    seen = []
    for gpus, nics, indices in MATRICES[name]:
        for index in indices:
            row = found.links[f"gpu{index}"]
            others = [str(row[gpu.id]) if gpu.index != index else "X" for gpu in found.machine.gpus]
            expected = spelled(gpus)
            if expected.index("X") != index:  # all others are alike
                expected.insert(index, expected.pop(expected.index("X")))
            assert others == expected
            assert [str(row[card]) for card in cards] == spelled(nics)
            seen.append(index)
    assert seen == [gpu.index for gpu in found.machine.gpus]


@pytest.mark.parametrize("name", NAMES)
def test_classes(name: str) -> None:
    expected = {f"dsagent.io/gpu-roce{n}": devices for n, devices in CLASSES.get(name, {}).items()}
    assert classes(topology(name)) == expected


@pytest.mark.parametrize("name", SETS)
def test_sets(name: str) -> None:
    links = topology(name).links
    pairs = scores(links, tuple(links))
    free, without_first = SETS[name]
    assert allocate(tuple(links), [], 4, Policy.BEST_LINK, pairs) == tuple(f"gpu{n}" for n in free)
    rest = tuple(links)[1:]
    got = allocate(rest, ["gpu1"], 4, Policy.BEST_LINK, pairs)
    assert sorted(got) == sorted(f"gpu{n}" for n in without_first)


def test_cube_mesh_has_the_sets_that_its_makers_name() -> None:
    links = topology("dgx-1-v100").links
    pairs = scores(links, tuple(links))
    assert allocate(tuple(links), [], 2, Policy.BEST_LINK, pairs) == ("gpu2", "gpu3")  # NV2 at one switch
    assert score(("gpu0", "gpu1", "gpu2", "gpu3"), pairs) == 900 + 2 * 50 + 4 * 30


def test_patents_example_is_two_classes_of_four() -> None:
    assert classes(topology("roce-2socket", pattern="inspur.com/gpu-roce{n}")) == {
        "inspur.com/gpu-roce1": ["gpu0/mlx5_4", "gpu1/mlx5_5", "gpu2/mlx5_6", "gpu3/mlx5_7"],
        "inspur.com/gpu-roce2": ["gpu4/mlx5_8", "gpu5/mlx5_9", "gpu6/mlx5_10", "gpu7/mlx5_11"],
    }


def test_overrides_show_the_switches_that_a_virtual_machine_hides() -> None:
    overrides = load_overrides(MACHINES / "azure-ndv4" / "overrides.yaml")
    hidden = load_recording(MACHINES / "azure-ndv4")
    without, _ = find_topology(hidden, NO_OVERRIDES)
    found, _ = find_topology(hidden, overrides)
    assert {gpu.numa_node for gpu in without.machine.gpus} == {-1}
    assert [gpu.numa_node for gpu in found.machine.gpus] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [str(found.links["gpu2"][f"mlx5_{n}"]) for n in range(8)] == spelled("SYS*2 PIX*2 SYS*4")
    # NVLinks are nothing that hides; the score below them tells who is near.
    assert [found.links["gpu0"][f"gpu{n}"].score for n in (1, 2)] == [1250, 1210]


def test_memory_only_numa_nodes_are_nodes_without_cpus() -> None:
    machine = topology("gb200").machine
    assert len(machine.numa_nodes) == 34
    assert [node.id for node in machine.numa_nodes if node.cpus] == [0, 1]
    assert len(machine.cpus) == 144


def test_cpus_of_a_core_share_package_and_core() -> None:
    cpus = {cpu.id: cpu for cpu in topology("dgx-a100").machine.cpus}
    assert (cpus[17].numa_node, cpus[17].package) == (1, 0)
    assert (cpus[17].package, cpus[17].core) == (cpus[145].package, cpus[145].core)
    assert len({(cpu.package, cpu.core) for cpu in cpus.values()}) == 128
