"""Every machine of tests/machines: its matrix, rails and classes."""

import pytest

from gpu_topology.api import Topology
from gpu_topology.discover import find_topology
from gpu_topology.rails import DEFAULT_RESOURCE
from gpu_topology.recording import FILE, load_recording
from tests.machines.build import MACHINES, Built, text_of
from tests.machines.descriptions import BUILT


def topology(name: str, pattern: str = DEFAULT_RESOURCE) -> Topology:
    found, _ = find_topology(load_recording(MACHINES / name), pattern=pattern)
    return found


def classes(found: Topology) -> dict[str, list[str]]:
    return {rail.resource: [device.id for device in rail.devices] for rail in found.rails}


@pytest.mark.parametrize("machine", BUILT, ids=lambda machine: machine.name)
def test_file_is_what_the_description_makes(machine: Built) -> None:
    assert (MACHINES / machine.name / FILE).read_text() == text_of(machine), "run: python -m tests.machines.build"


def test_every_machine_has_its_source() -> None:
    named = (MACHINES / "README.md").read_text()
    assert [path.parent.name for path in MACHINES.glob(f"*/{FILE}") if f"| {path.parent.name} |" not in named] == []


def test_patents_example_is_two_classes_of_four() -> None:
    assert classes(topology("roce-2socket", pattern="inspur.com/gpu-roce{n}")) == {
        "inspur.com/gpu-roce1": ["gpu0/mlx5_4", "gpu1/mlx5_5", "gpu2/mlx5_6", "gpu3/mlx5_7"],
        "inspur.com/gpu-roce2": ["gpu4/mlx5_8", "gpu5/mlx5_9", "gpu6/mlx5_10", "gpu7/mlx5_11"],
    }
