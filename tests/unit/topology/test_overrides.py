"""The file that says what a virtual machine hides."""

from pathlib import Path

import pytest

from gpu_topology.discover import find_topology
from gpu_topology.errors import BadFile
from gpu_topology.overrides import Overrides, load_overrides
from gpu_topology.recording import load_recording
from tests.machines.build import MACHINES


def test_addresses_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text("switches:\n  a: [0001:00:00.0]\nnuma_nodes:\n  1: [0001:00:00.0, 10000:01:00.0]\n")
    assert load_overrides(path) == Overrides({"0001:00:00.0": "a"}, {"0001:00:00.0": 1, "10000:01:00.0": 1})


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "switches and numa_nodes"),
        ("switch: {}", "switches and numa_nodes"),
        ("switches: [a]", "a list of PCI addresses for each name"),
        ("switches: {a: 0001:00:00.0}", "a list of PCI addresses for each name"),
        ("switches: {a: [gpu0]}", "'gpu0' is not a PCI address"),
        ("switches: {a: [0001:00:00.0], b: [0001:00:00.0]}", "named twice"),
        ("numa_nodes: {left: [0001:00:00.0]}", "'left' is not a node's number"),
        ("switches: {a: [", "while parsing"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, content: str, cause: str) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text(content)
    with pytest.raises(BadFile) as caught:
        load_overrides(path)
    assert cause in str(caught.value)
    assert str(path) in str(caught.value)


def test_virtual_functions_are_where_their_card_is() -> None:
    over = Overrides({"0000:1d:00.0": "s", "0000:9a:00.0": "s"}, {"0000:1d:00.0": 1})
    found, _ = find_topology(load_recording(MACHINES / "roce-2socket"), over)
    row = found.links["gpu4"]
    assert (str(row["mlx5_0"]), str(row["mlx5_4"]), str(row["mlx5_2"])) == ("PIX", "PIX", "NODE")
    assert {vf.numa_node for vf in found.machine.nics[0].vfs} == {1}
