"""What a test may ask of the machine: `pytestmark = pytest.mark.needs("root", "loop")`.

A test whose need is not met is skipped. In CI (CI=true) that is a failure, unless the need is of a kind that
root on Debian cannot bring about.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from tools.servers import kept_program


@dataclass(frozen=True)
class Need:
    """One thing a machine has or has not."""

    met: Callable[[], bool]
    advice: str

    @property
    def installable(self) -> bool:
        """Whether this process, root on Debian, could bring it about."""
        return self.advice.startswith("apt ") and _is_root() and shutil.which("apt-get") is not None


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") for name in names)


def _opens(device: str) -> Callable[[], bool]:
    def opens() -> bool:
        try:
            os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    return opens


def _kept(name: str) -> Callable[[], bool]:
    return lambda: kept_program(name).exists()


def _can_mount() -> bool:
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, check=False, capture_output=True).returncode == 0
    )


def _pkg_config(library: str) -> Callable[[], bool]:
    def known() -> bool:
        if shutil.which("pkg-config") is None:
            return False
        return subprocess.run(["pkg-config", "--exists", library], check=False).returncode == 0

    return known


def _module(name: str) -> Callable[[], bool]:
    return lambda: find_spec(name) is not None


def _is_root() -> bool:
    return os.geteuid() == 0


# Under root on Debian the CI script installs what an `apt` advice names; the rest is given or it is not.
NEEDS = {
    "curl": Need(_programs("curl"), "apt install curl"),
    "ip": Need(_programs("ip"), "apt install iproute2"),
    "cc": Need(_programs("gcc"), "apt install gcc libc6-dev"),
    "ext4": Need(_programs("mkfs.ext4"), "apt install e2fsprogs"),
    "quota": Need(_programs("setquota", "quotaon"), "apt install quota"),
    "setpriv": Need(_programs("setpriv"), "apt install util-linux"),
    "tar": Need(_programs("tar", "zstd"), "apt install tar zstd"),
    "libfuse3": Need(_pkg_config("fuse3"), "apt install pkg-config fuse3 libfuse3-dev"),
    "root": Need(_is_root, "run as root"),
    "fuse": Need(_opens("/dev/fuse"), "a kernel and a container with /dev/fuse"),
    "loop": Need(_opens("/dev/loop-control"), "a kernel and a container with loop devices"),
    "mount": Need(_can_mount, "a container with CAP_SYS_ADMIN"),
    "apt": Need(_programs("apt-get"), "Debian or Ubuntu"),
    "systemd-analyze": Need(_programs("systemd-analyze"), "a machine with systemd"),
    "promtool": Need(_programs("promtool"), "install Prometheus"),
    "go": Need(_programs("go"), "install Go"),
    "qemu-aarch64": Need(_programs("qemu-aarch64-static"), "Debian's qemu-user-static"),
    "helm": Need(_kept("helm"), "make cluster, which builds it"),
    "java": Need(_programs("java"), "install a Java runtime"),
    "torch": Need(_module("torch"), "pip install torch torchvision"),
    "datasets": Need(_module("datasets"), "pip install datasets"),
}


@cache
def _is_met(name: str) -> bool:
    return NEEDS[name].met()


def unmet(names: Iterable[str]) -> list[str]:
    """Those of the names this machine lacks; KeyError for a name that is not in NEEDS."""
    return [name for name in names if not _is_met(name)]
