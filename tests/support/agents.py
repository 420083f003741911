"""Real agents: `dsagent serve` as a process of its own, and asking it over its socket."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import prefork
from tests.support.command import HANG_SECONDS, REPOSITORY, Process

SERVE = [sys.executable, "-P", "-m", "dsagent.entrypoints.serve"]


@dataclass
class Reply:
    """An answer of an agent."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The document."""
        return json.loads(self.body)


@dataclass
class AgentProcess:
    """An agent of a root; it can be started again after its end. Its socket and its log lie beside the root."""

    root: Path
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    process: Process | None = None

    @property
    def socket(self) -> Path:
        """Where it listens; the paths of sockets are short."""
        return self.root.parent / f"{self.root.name}.sock"

    @property
    def address(self) -> str:
        """What DSAGENT_AGENT takes."""
        return f"unix://{self.socket}"

    @property
    def log(self) -> Path:
        """All that it said on standard error, over all its starts."""
        return self.root.parent / f"{self.root.name}.log"

    def arguments(self) -> list[str]:
        """What the program is given."""
        return ["serve", "--root", str(self.root), "--socket", str(self.socket), *self.flags]

    def launch(self) -> Process:
        """Starts it, and does not wait."""
        assert self.process is None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DSAGENT_")}
        variables = {**kept, "PYTHONPATH": str(REPOSITORY), **self.environment}
        with self.log.open("ab") as log:
            if prefork.possible(self.environment, self.prefix):
                self.process = prefork.Forked("dsagent", self.arguments(), variables, [log.fileno()] * 2, self.prefix)
            else:
                self.process = subprocess.Popen(
                    [*self.prefix, *SERVE, *self.arguments()],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        return self.process

    def start(self) -> "AgentProcess":
        """Starts it and waits until it is ready."""
        process = self.launch()
        end = time.monotonic() + HANG_SECONDS
        while not self.is_ready():
            assert process.poll() is None, f"the agent ended: {self.log.read_text()}"
            assert time.monotonic() < end, f"the agent is not ready: {self.log.read_text()}"
            time.sleep(0.01)
        return self

    def is_ready(self) -> bool:
        """What /readyz says."""
        try:
            return self.ask("GET", "/readyz").status == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Sends one request over the socket; raises OSError if nobody answers."""
        connection = _Connection(self.socket)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def kill(self) -> None:
        """SIGKILL of the agent alone, as the kernel does when memory is short; its workers end by themselves."""
        process = self._running()
        process.kill()
        process.wait(timeout=HANG_SECONDS)

    def stop(self) -> int:
        """SIGTERM; waits for its end and gives its exit code."""
        process = self._running()
        process.terminate()
        return process.wait(timeout=HANG_SECONDS)

    def end(self) -> None:
        """Whatever became of it: nothing of it runs any more."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=HANG_SECONDS)
            self.process = None

    def _running(self) -> Process:
        process, self.process = self.process, None
        assert process is not None
        return process


@contextmanager
def agent(
    root: Path, *flags: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[AgentProcess]:
    """An agent that is ready; at the end nothing of it runs any more."""
    running = AgentProcess(root, flags, environment or {}, prefix)
    try:
        yield running.start()
    finally:
        running.end()


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=HANG_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(HANG_SECONDS)
        self.sock.connect(str(self._path))
