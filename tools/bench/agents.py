"""An agent to measure, and requests to it."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.setting import LONGEST_SECONDS


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("agent", timeout=LONGEST_SECONDS)
        self._path = str(path)

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def ask(self, method: str, path: str, document: object = None) -> Any:
        """Send a request; the document of the answer.

        Raises:
            RuntimeError: the agent refused; with what it said.
        """
        body = None if document is None else json.dumps(document)
        self.request(method, path, body, {"Content-Type": "application/json"})
        answer = self.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {data.decode()}")
        return json.loads(data) if data else None


@dataclass(frozen=True)
class Agent:
    """A running agent."""

    pid: int
    socket: Path

    def connection(self) -> Connection:
        """A new connection."""
        return Connection(self.socket)

    def cache(self, task: str, *sources: Path, **fields: str) -> Any:
        """Put a task and wait until it is over; its state as the agent tells it.

        Raises:
            RuntimeError: it failed.
        """
        with contextlib.closing(self.connection()) as connection:
            datasets = [{"source": str(source), **fields} for source in sources]
            info = connection.ask(
                "PUT", f"/v1/tasks/{task}", {"owner": {"name": task, "uid": task}, "datasets": datasets}
            )
            while info["state"] in ("pending", "running"):
                info = connection.ask("GET", f"/v1/tasks/{task}?wait=60")
        if info["state"] != "ready":
            raise RuntimeError(json.dumps(info))
        return info

    def pss(self) -> int:
        """Bytes of memory of the agent and its workers together."""
        return sum(_pss(pid) for pid in (self.pid, *_children(self.pid)))

    def metrics(self) -> dict[str, float]:
        """What /metrics says, by each line's name and labels."""
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    def waited_for_cpu(self) -> float:
        """Seconds that the agent's threads of now were ready to run and had no CPU, in all."""
        files = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[1]) for file in files) / 1e9

    def cpu_seconds(self) -> float:
        """User and system time of the agent itself so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def agent(root: Path, folder: Path, *options: str) -> Iterator[Agent]:
    """An agent on `root`, with its socket and log in `folder`."""
    path = folder / "agent.sock"
    program = Path(sys.executable).with_name("dsagent")
    command = [program, "serve", "--root", root, "--socket", path, "--keep-free", "0B", *options]
    with (folder / "agent.log").open("ab") as log:
        process = subprocess.Popen([str(part) for part in command], stderr=log)
    try:
        _wait_until_ready(process, path, folder / "agent.log")
        yield Agent(process.pid, path)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_until_ready(process: "subprocess.Popen[bytes]", path: Path, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), contextlib.closing(Connection(path)) as connection:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the agent does not become ready: {log.read_text()[-2000:]}")


def _pss(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has just ended
        return 0
    return sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found
