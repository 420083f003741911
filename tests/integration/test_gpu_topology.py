"""gpu-topology beside real interfaces, in a network namespace: their addresses say which subnets a machine is in."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines.trees import put, tree_of

pytestmark = pytest.mark.needs("root", "mount", "ip")

INTERFACES = """
ip link add ens1f0 type veth peer name ens2f0
ip address add 10.1.1.7/24 dev ens1f0
ip address add 10.1.2.7/24 dev ens2f0
ip address add fd00:7::7/64 dev ens2f0
exec "$@"
"""


def gpu_topology(*words: object) -> subprocess.CompletedProcess[str]:
    """Run it where ens1f0 and ens2f0 have addresses."""
    command = [sys.executable, "-m", "gpu_topology.command", *map(str, words)]
    inside = ["unshare", "--net", "sh", "-ec", INTERFACES, "sh", *command]
    return subprocess.run(inside, capture_output=True, text=True, check=False)


def before(folder: Path) -> Path:
    """The sysfs of the two-socket machine before anybody has made virtual functions."""
    root = put(tree_of("roce-2socket"), folder / "sys")
    devices = root / "bus/pci/devices"
    for vf in [*devices.glob("0000:1d:00.[2-7]"), *devices.glob("0000:9e:00.[2-7]")]:
        vf.unlink()
    for card in devices.glob("*/sriov_numvfs"):
        card.write_text("0\n")
    return root


def test_subnets_are_those_of_the_interfaces_addresses(tmp_path: Path) -> None:
    root = put(tree_of("roce-2socket"), tmp_path / "sys")
    shown = json.loads(gpu_topology("show", "--sysfs-root", root, "-o", "json").stdout)
    assert [nic["subnet"] for nic in shown["nics"]] == ["10.1.1.0/24", None, "10.1.2.0/24", None]
    assert [rail["subnet"] for rail in shown["rails"]] == ["10.1.1.0/24", "10.1.2.0/24"]


def test_vfs_are_planned_made_once_and_then_left_alone(tmp_path: Path) -> None:
    root = before(tmp_path)
    first, second = (root / f"bus/pci/devices/0000:{bus}:00.0" for bus in ("1d", "9e"))
    plan = gpu_topology("vfs", "plan", "--sysfs-root", root).stdout
    assert plan.splitlines()[0] == (
        "mlx5_0 (0000:1d:00.0): 0 VFs, near gpu0, gpu1, gpu2, gpu3: 4 will be made by `gpu-topology vfs apply`"
    )
    assert (first / "sriov_numvfs").read_text() == "0\n"  # a plan writes nothing
    (second / "sriov_totalvfs").write_text("2")
    done = gpu_topology("vfs", "apply", "--sysfs-root", root)
    assert done.returncode == 1
    assert "mlx5_2 (0000:9e:00.0): its firmware allows 2" in done.stderr
    assert (first / "sriov_numvfs").read_text() == "4\n"  # the other card is served all the same
    assert (second / "sriov_numvfs").read_text() == "0\n"
    made = put(tree_of("roce-2socket"), tmp_path / "made")
    assert gpu_topology("vfs", "apply", "--sysfs-root", made).stdout == "nothing to do\n"
