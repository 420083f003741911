"""Planning and making virtual functions, on made trees."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_topology.api import Rail
from gpu_topology.discover import find_topology
from gpu_topology.errors import NotPermitted, TopologyError
from gpu_topology.recording import Inputs, load_recording
from gpu_topology.sysfs import Directory
from gpu_topology.vfs import Plan, apply_plan, plan_vfs
from tests.machines.build import MACHINES
from tests.machines.trees import put, tree_of

CARD = "bus/pci/devices/0000:1d:00.0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The two-socket machine as it is before anybody has made virtual functions."""
    root = put(tree_of("roce-2socket"), tmp_path / "sys")
    for vf in [
        *(root / "bus/pci/devices").glob("0000:1d:00.[2-7]"),
        *(root / "bus/pci/devices").glob("0000:9e:00.[2-7]"),
    ]:
        vf.unlink()
    for card in (root / "bus/pci/devices").glob("*/sriov_numvfs"):
        card.write_text("0\n")
    return root


def rails(root: Path) -> tuple[Rail, ...]:
    subnets = load_recording(MACHINES / "roce-2socket").subnets
    topology, _ = find_topology(Inputs(Directory(root), subnets, {}))
    return topology.rails


def first(root: Path) -> Plan:
    return plan_vfs(rails(root))[0]


def test_as_many_as_gpus_are_near(root: Path) -> None:
    plans = plan_vfs(rails(root))
    assert [(plan.nic.name, len(plan.gpus), plan.is_met, plan.obstacle) for plan in plans] == [
        ("mlx5_0", 4, False, ""),
        ("mlx5_2", 4, False, ""),
    ]


def test_apply_writes_the_number_and_nothing_when_it_is_met(root: Path) -> None:
    plan = first(root)
    apply_plan(plan, root)
    assert (root / CARD / "sriov_numvfs").read_text() == "4\n"  # a file keeps the rest of what it had
    (root / CARD / "sriov_numvfs").write_text("untouched")
    apply_plan(replace(plan, gpus=()), root)
    assert (root / CARD / "sriov_numvfs").read_text() == "untouched"


def test_a_machine_that_has_them_needs_nothing() -> None:
    topology, _ = find_topology(load_recording(MACHINES / "roce-2socket"))
    assert all(plan.is_met for plan in plan_vfs(topology.rails))


@pytest.mark.parametrize(
    ("most", "said"), [("0", "no SR-IOV"), ("", "no SR-IOV"), ("2", "firmware allows 2"), ("70000", "no SR-IOV")]
)
def test_what_stands_in_the_way_is_said_and_nothing_is_written(root: Path, most: str, said: str) -> None:
    (root / CARD / "sriov_totalvfs").write_text(most)
    plan = first(root)
    assert said in plan.obstacle
    with pytest.raises(TopologyError, match=said):
        apply_plan(plan, root)
    assert (root / CARD / "sriov_numvfs").read_text() == "0\n"


def test_too_few_are_not_replaced_by_themselves(tmp_path: Path) -> None:
    root = put(tree_of("roce-2socket"), tmp_path / "sys")
    (root / "bus/pci/devices/0000:1d:00.5").unlink()
    assert "by way of 0" in first(root).obstacle


def test_a_card_that_is_gone_is_not_made_a_file(root: Path) -> None:
    plan = first(root)
    (root / CARD / "sriov_numvfs").unlink()
    with pytest.raises(TopologyError, match="No such file"):
        apply_plan(plan, root)
    assert not (root / CARD / "sriov_numvfs").exists()


def test_a_kernel_that_makes_fewer_is_not_believed(root: Path) -> None:
    plan = first(root)
    (root / CARD / "sriov_numvfs").unlink()
    (root / CARD / "sriov_numvfs").symlink_to("/dev/null")  # takes what is written, and reads as nothing
    with pytest.raises(TopologyError, match="after 4 were asked for"):
        apply_plan(plan, root)


def test_a_file_that_may_not_be_written_is_said_with_what_to_do(root: Path) -> None:
    plan = first(root)
    (root / CARD / "sriov_numvfs").unlink()
    (root / CARD / "sriov_numvfs").symlink_to("/sys/kernel/uevent_seqnum")  # nobody may write it, not even root
    with pytest.raises(NotPermitted, match=r"mlx5_0 \(0000:1d:00.0\): Permission denied; run it as root"):
        apply_plan(plan, root)
