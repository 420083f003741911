"""containerd in a room that has its own /var and /run."""

from tools.cluster.layout import REGISTRY
from tools.cluster.rooms import Room, is_running, start, stop, wait_until

SOCKET = "/run/containerd/containerd.sock"
PAUSE = "docker.io/local/pause:1"
NETWORKS = "/var/lib/cni/net.d"
STORE = "var/lib/containerd"  # below the room's directory

# Without restrict_oom_score_adj no pod starts on a machine that does not let root lower that score.
_CONFIG = f"""version = 2
root = "/{STORE}"
state = "/run/containerd"

[grpc]
address = "{SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{NETWORKS}"

[plugins."io.containerd.grpc.v1.cri".registry.mirrors."{REGISTRY}"]
endpoint = ["http://{REGISTRY}"]
"""


def start_containerd(room: Room) -> None:
    """Start containerd, if it does not run, and wait until it answers."""
    if not is_running(room, "containerd"):
        (room.directory / "containerd.toml").write_text(_CONFIG)
        start(room, "containerd", ["containerd", "--config", f"{room.directory}/containerd.toml"])
    wait_until(
        lambda: ctr(room, "version", check=False),
        f"containerd of {room.name}; its log is {room.logs}/containerd.log",
        60,
    )


def restart_containerd(room: Room) -> None:
    """Stop containerd and start it anew; containers go on."""
    stop(room, "containerd")
    start_containerd(room)


def ctr(room: Room, *arguments: str, check: bool = True) -> bool:
    """Run containerd's own client among kubelet's images; whether it succeeded.

    Raises:
        ClusterError: it failed, and `check` is true.
    """
    command = ["ctr", "--address", SOCKET, "--namespace", "k8s.io", *arguments]
    return room.run(*command, check=check).returncode == 0
