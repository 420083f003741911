"""Recording a machine and reading it back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_topology.discover import find_topology
from gpu_topology.errors import BadFile
from gpu_topology.nvml import GpuFacts
from gpu_topology.recording import FILE, load_recording, start_recording, without_addresses, write_recording
from gpu_topology.sysfs import Directory
from tests.machines.build import MACHINES
from tests.machines.trees import put, tree_of

NAMES = sorted(path.parent.name for path in MACHINES.glob(f"*/{FILE}"))


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_of_a_recording_shows_the_same_machine(name: str, tmp_path: Path) -> None:
    inputs, recorder = start_recording(load_recording(MACHINES / name))
    before, _ = find_topology(inputs)
    write_recording(tmp_path, inputs, recorder, "again")
    after, _ = find_topology(load_recording(tmp_path))
    assert (after.links, after.machine.numa_nodes) == (before.links, before.machine.numa_nodes)
    assert [
        rail.devices == other.devices for rail, other in zip(after.rails, before.rails, strict=True)
    ] or not after.rails
    assert [(rail.number, [d.id for d in rail.devices]) for rail in after.rails] == [
        (rail.number, [d.id for d in rail.devices]) for rail in before.rails
    ]


def test_nothing_tells_whose_machine_it_is(tmp_path: Path) -> None:
    root = put(tree_of("roce-2socket"), tmp_path / "sys")
    card = root / "bus/pci/devices/0000:1d:00.0"
    (card / "net/ens1f0").rename(card / "net/enx0c42a1030065")
    for place in range(4):
        (card / f"infiniband/mlx5_0/ports/1/gid_attrs/ndevs/{place}").write_text("enx0c42a1030065")
    for name, text in {"node_guid": "0c42:a103:0065:fafa", "node_desc": "host17 mlx5_0"}.items():
        (card / "infiniband/mlx5_0" / name).write_text(text)
    (card / "net/enx0c42a1030065/address").write_text("0c:42:a1:03:00:65")
    facts = {"0000:19:00.0": GpuFacts("A100", "GPU-257d8671-d0e6-d1a7-dea9-952249a668fa")}
    seen = replace(
        load_recording(MACHINES / "roce-2socket"),
        sysfs=Directory(root),
        subnets={"enx0c42a1030065": ("203.0.113.0/24",), "ens2f0": ("198.51.100.0/25", "2001:db8::/32")},
        facts=facts,
    )
    inputs, recorder = start_recording(seen)
    before, _ = find_topology(inputs)
    text = write_recording(tmp_path / "out", inputs, recorder, "").read_text()
    for secret in ("0c42", "0c:42", "host17", "257d8671", "203.0.113", "198.51.100", "2001:db8"):
        assert secret not in text
    after, _ = find_topology(load_recording(tmp_path / "out"))
    assert [[d.id for d in rail.devices] for rail in after.rails] == [
        [d.id for d in rail.devices] for rail in before.rails
    ]


def test_names_made_from_addresses_become_others_and_the_same_the_same() -> None:
    text = "enx0c42a1030065 rocex0c42a1030065fafa enx0c42a1030065 enx0c42a1030066 0x0c42a1030065 mlx5_0"
    first, guid, again, second, number, name = without_addresses(text).split()
    assert first == again != second
    assert (number, name) == ("0x0c42a1030065", "mlx5_0")
    assert "0c42" not in first + guid + second


@pytest.mark.parametrize(
    ("content", "cause"),
    [(None, "No such file"), ("{", "line 1"), ("[]", "no object sysfs"), ('{"sysfs": 1}', "no object sysfs")],
)
def test_what_is_no_recording_is_said(tmp_path: Path, content: str | None, cause: str) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    with pytest.raises(BadFile) as caught:
        load_recording(tmp_path)
    assert cause in str(caught.value)


def test_parts_that_are_of_no_use_are_left_out(tmp_path: Path) -> None:
    document = {
        "sysfs": {},
        "subnets": {"a": ["10.0.0.1/24", "x", 7], "b": "10.0.0.0/8", "c": []},
        "nvml": {"p": {"name": 1, "nvlinks": {"q": "2", "r": 2, "s": -1}, "switch_nvlinks": True}, "o": []},
    }
    (tmp_path / FILE).write_text(json.dumps(document))
    read = load_recording(tmp_path)
    assert read.subnets == {"a": ("10.0.0.0/24",), "c": ()}
    assert read.facts == {"p": GpuFacts(nvlinks={"r": 2}), "o": GpuFacts()}
    assert find_topology(read)[0].machine.gpus == ()
