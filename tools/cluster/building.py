"""What the cluster is made of: Debian packages, and programs built with Go once and kept by version."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.cluster.layout import ClusterError
from tools.servers import ToolMissingError, go_program, tools_directory

KUBERNETES = "v1.34.3"  # as in kubernetes/go.mod
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")
GO = (1, 24)

# A program of each Debian package, by which it is seen to be installed.
PACKAGES = {
    "buildah": "buildah",
    "busybox-static": "/usr/share/doc/busybox-static",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "debootstrap": "debootstrap",
    "docker-registry": "docker-registry",
    "etcd-server": "etcd",
    "iproute2": "ip",
    "iptables": "iptables",
    "runc": "runc",
    "util-linux": "nsenter",
}
_SOURCES = Path(__file__).parent / "kubernetes"


def require_machine() -> None:
    """See that a cluster can be started here; as root on Debian, install the packages that are missing.

    Raises:
        ClusterError: it cannot; the message names everything that is missing.
    """
    missing = [] if os.geteuid() == 0 else ["to be root"]
    missing += [] if _kernel_has("overlay") else ["a kernel with overlayfs"]
    packages = [name for name, sign in PACKAGES.items() if not _is_there(sign)]
    if packages and not missing and shutil.which("apt-get"):
        print(f"installing {' '.join(packages)}", flush=True)
        apt = ["apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends", *packages]
        # Debian starts the services that it installs unless this forbids it.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        subprocess.run(["apt-get", "update", "--quiet=2"], check=True)
        subprocess.run(apt, check=True, env=environment, stdout=subprocess.DEVNULL)
        packages = [name for name, sign in PACKAGES.items() if not _is_there(sign)]
    missing += [f"the Debian packages {' '.join(packages)}"] if packages else []
    missing += _lacking_go()
    if missing:
        advice = "this works as root on Debian; elsewhere use kind: docs/guides/kubernetes-cluster.md"
        raise ClusterError(f"cannot start a cluster: it needs {', and '.join(missing)}; {advice}")


def build_programs() -> None:
    """Build what is not built yet: the first time about ten minutes on two cores.

    Raises:
        ClusterError: something could not be built.
    """
    missing = [name for name in PROGRAMS if not program(name).exists()]
    if missing:
        print(f"building {' '.join(missing)} {KUBERNETES}", flush=True)
        _build(missing)
    helm()


def program(name: str) -> Path:
    """The path of one of PROGRAMS, built or not."""
    return tools_directory() / f"kubernetes-{KUBERNETES}" / name


def helm() -> Path:
    """Helm, built if it is not there yet."""
    try:
        return go_program("helm")
    except ToolMissingError as error:
        raise ClusterError(f"cannot build helm: {error}") from error


def _build(names: Sequence[str]) -> None:
    """All with one command, which compiles what they share once and some of one while it links another."""
    target = program(names[0]).parent
    target.mkdir(parents=True, exist_ok=True)
    version = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
    numbers = "-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in names]
    with tempfile.TemporaryDirectory(prefix="build-", dir=target) as scratch:
        flags = ["-trimpath", "-mod=readonly", "-ldflags", f"-s -w {version} {numbers}", "-o", f"{scratch}/"]
        command = ["go", "build", *flags, *packages]
        done = subprocess.run(command, check=False, cwd=_SOURCES, capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(f"cannot build {' '.join(names)} {KUBERNETES}: {done.stderr.strip()}")
        for name in names:
            Path(scratch, name).rename(program(name))


def _lacking_go() -> list[str]:
    if all(program(name).exists() for name in PROGRAMS):
        return []
    wanted = f"Go {GO[0]}.{GO[1]} or newer on PATH"
    if shutil.which("go") is None:
        return [wanted]
    said = subprocess.run(["go", "env", "GOVERSION"], check=False, capture_output=True, text=True).stdout
    found = tuple(int(part) for part in said.strip().removeprefix("go").split(".")[:2] if part.isdecimal())
    return [] if found >= GO else [f"{wanted}, and not {said.strip()}"]


def _is_there(sign: str) -> bool:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return Path(sign).exists() if sign.startswith("/") else shutil.which(sign, path=path) is not None


def _kernel_has(filesystem: str) -> bool:
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    return filesystem in known or subprocess.run(["modprobe", filesystem], check=False).returncode == 0
