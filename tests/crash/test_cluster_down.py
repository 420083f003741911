"""`make cluster-down` after `make cluster` was killed on its way: nothing of the cluster is left on the machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.cluster.layout import API_ADDRESS, BRIDGE, CGROUP, PODS, the_cluster
from tools.cluster.rooms import wait_until
from tools.servers import tools_directory

# What is there when it is killed: the first files of a node, its images half copied, its containerd, its kubelet.
_MOMENTS = ("node1", "node1/var/lib/containerd.new", "node2/containerd.pid", "node1/kubelet.pid")


def tool(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tools.cluster", *arguments], cwd=Path(__file__).parents[2])


def left() -> dict[str, object]:
    """All of a cluster that can be found on the machine."""
    network = API_ADDRESS.rpartition(".")[0]
    routes = _printed("ip", "-4", "route", "show").splitlines()
    rules = _printed("iptables-save").splitlines()
    return {
        "processes": [pid for pid in _processes() if _of_cluster(pid)],
        "links": [line for line in _printed("ip", "-brief", "link").splitlines() if line.startswith(BRIDGE[:-1])],
        "routes": [line for line in routes if network in line or PODS.rpartition(".0.")[0] in line],
        "rules": [line for line in rules if "KUBE" in line or "CNI" in line],
        "groups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{CGROUP}")],
        "loops": [line for line in _printed("losetup", "--list").splitlines() if str(tools_directory()) in line],
        "folder": the_cluster().directory.exists(),
    }


def _processes() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _of_cluster(process: Path) -> bool:
    """Whether it names the cluster's folder, has it among its mounts, or is in its control group."""
    folder = str(the_cluster().directory)
    try:
        seen = [(process / file).read_text(errors="replace") for file in ("cmdline", "mountinfo", "cgroup")]
    except OSError:
        return False
    return any(folder in text or f"/{CGROUP}" in text for text in seen)


def _printed(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("moment", _MOMENTS)
def test_nothing_is_left(moment: str) -> None:
    assert not any(left().values()), "a cluster runs on this machine: make cluster-down first"
    starting = tool("up", "--nodes", "2")
    wait_until((the_cluster().directory / moment).exists, f"{moment} to be there", 600)
    os.kill(starting.pid, signal.SIGKILL)
    starting.wait()
    assert tool("down").wait() == 0
    wait_until(lambda: not any(left().values()), f"nothing to be left; now it is {left()}", 10)
