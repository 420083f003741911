"""Rooms: sets of namespaces in which the parts of the cluster live, each with a first process that does nothing.

A room's first process has a PID namespace of its own, so when it is killed the kernel kills everything in the room; and
with the last process go the room's mounts, links, addresses and firewall rules. So a crash leaves nothing that `close`
could not find: only the first process has to be known, and it waits to be written down before it goes on.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.layout import ClusterError

# With SIGCHLD ignored the kernel itself buries the processes that come to the first one as orphans.
_FIRST = "echo ready; read -r go || exit; exec env --ignore-signal=CHLD sleep infinity"
_parents: dict[Path, subprocess.Popen[bytes]] = {}  # of the rooms that this process has opened
_SHARED = ("--mount", "--uts", "--ipc", "--pid")


# So that two rooms share no state of containerd, kubelet, CNI or dsagent.
_OWN_FOLDERS = """
mountpoint --quiet /var/lib/kubelet && exit
mkdir -p "$1/var/lib/kubelet" "$1/var/log" "$1/var/tmp"
mount --bind "$1/var" /var
mount -t tmpfs -o mode=755 tmpfs /run
ln -sfn /run /var/run
mkdir -p /run/lock
mount --bind /var/lib/kubelet /var/lib/kubelet
mount --make-rshared /
hostname "$2"
"""


@dataclass(frozen=True)
class Room:
    """One set of namespaces; `directory` has its record, `logs` the output of its programs."""

    name: str
    directory: Path
    logs: Path
    own_network: bool

    @property
    def record(self) -> Path:
        return self.directory / "room.json"

    @property
    def pid(self) -> int | None:
        """The first process, as the machine numbers it, or None when the room is not open."""
        try:
            written = json.loads(self.record.read_text())
        except FileNotFoundError:
            return None
        return written["pid"] if started_at(written["pid"]) == written["start"] else None

    def enter(self, *command: str) -> list[str]:
        """The command that runs `command` in the room.

        Raises:
            ClusterError: the room is not open.
        """
        if self.pid is None:
            raise ClusterError(f"cannot run {command[0]} in {self.name}: it is not running; start it: make cluster")
        return ["nsenter", f"--target={self.pid}", *_SHARED, *(["--net"] if self.own_network else []), "--", *command]

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the room to its end.

        Raises:
            ClusterError: it failed, and `check` is true.
        """
        done = subprocess.run(self.enter(*command), check=False, capture_output=True, text=True)
        if check and done.returncode:
            raise ClusterError(f"{' '.join(command)} in {self.name}: {(done.stderr or done.stdout).strip()}")
        return done


def started_at(pid: int) -> int | None:
    """When a process was started, in clock ticks since the boot; None when there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def wait_until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until something holds.

    Raises:
        ClusterError: it did not within the time; `what` says what was waited for.
    """
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise ClusterError(f"waited {seconds:g} s for {what}")
        time.sleep(0.1)


def open_room(room: Room) -> None:
    """Make the namespaces and write their first process down; a room that is open stays as it is."""
    if room.pid is not None:
        return
    room.directory.mkdir(parents=True, exist_ok=True)
    room.logs.mkdir(parents=True, exist_ok=True)
    namespaces = [*_SHARED, *(["--net"] if room.own_network else [])]
    with (room.logs / "room.log").open("wb") as log:
        parent = subprocess.Popen(
            ["unshare", *namespaces, "--fork", "--mount-proc", "--kill-child", "sh", "-c", _FIRST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    assert parent.stdin is not None
    assert parent.stdout is not None
    if parent.stdout.readline() != b"ready\n":
        raise ClusterError(f"cannot make namespaces for {room.name}: {(room.logs / 'room.log').read_text().strip()}")
    first = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
    scratch = room.record.with_suffix(".new")
    scratch.write_text(json.dumps({"pid": first, "start": started_at(first)}))
    os.replace(scratch, room.record)
    parent.stdin.write(b"go\n")
    parent.stdin.close()
    parent.stdout.close()
    _parents[room.record] = parent


def give_own_folders(room: Room) -> None:
    """Let the room's programs see its directory's `var` as /var, and an empty /run."""
    room.run("sh", "-ec", _OWN_FOLDERS, "sh", str(room.directory), room.name)


def give_own_disk(room: Room, size: int) -> None:
    """Put a new filesystem of `size` bytes below the folders that `give_own_folders` shows; it goes with the room."""
    image = room.directory / "var.img"
    with image.open("wb") as file:
        file.truncate(size)
    room.run("mkfs.ext4", "-q", "-m", "0", str(image))
    (room.directory / "var").mkdir()
    room.run("mount", "-o", "loop", str(image), str(room.directory / "var"))
    room.run("mkdir", str(room.directory / "var" / "lib"))


def close_room(room: Room) -> None:
    """Kill everything in the room and wait until it is gone."""
    if (pid := room.pid) is not None:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: room.pid is None, f"the processes of {room.name} to end", 30)
    room.record.unlink(missing_ok=True)
    if parent := _parents.pop(room.record, None):
        parent.wait()


def start(room: Room, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Start a program in the room; it outlives this one, and its output goes to the room's logs."""
    script = 'log=$1 pid=$2; shift 2; cd /; setsid "$@" < /dev/null >> "$log" 2>&1 & echo $! > "$pid"'
    variables = [f"{key}={value}" for key, value in (environment or {}).items()]
    files = [str(room.logs / f"{name}.log"), str(_pid_file(room, name))]
    room.run("env", *variables, "sh", "-c", script, "sh", *files, *command)


def stop(room: Room, name: str, kind: signal.Signals = signal.SIGTERM) -> None:
    """Stop a program of the room and wait until it is gone.

    Raises:
        ClusterError: it does not end.
    """
    pid = _pid_file(room, name).read_text().strip()
    room.run("kill", f"-{int(kind)}", pid, check=False)
    wait_until(lambda: not is_running(room, name), f"{name} of {room.name} to end", 60)


def is_running(room: Room, name: str) -> bool:
    """Whether a program that was started there still runs."""
    if room.pid is None or not _pid_file(room, name).exists():
        return False
    return room.run("kill", "-0", _pid_file(room, name).read_text().strip(), check=False).returncode == 0


def _pid_file(room: Room, name: str) -> Path:
    return room.directory / f"{name}.pid"
