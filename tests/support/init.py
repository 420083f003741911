"""Runs dsagent-init as an init container would: the zipapp, in a process of its own, with the standard library only."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from dsagent.entrypoints.init.zipapp import build
from tests.support.command import HANG_SECONDS, INTERRUPTIBLE

UID = "0b5f7a9e-6a0c-4b0e-9f3a-1d2c3b4a5f60"


_built = cache(build)


@dataclass(frozen=True)
class Ended:
    """A client that has ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.code}\n{self.out}\n{self.err}"


class Running:
    """A client under way; what it says is in a file, so that it can be looked at meanwhile."""

    def __init__(self, process: "subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def said(self) -> str:
        """What it has said so far on standard error."""
        return self._err.read_text()

    def until(self, text: str, seconds: float = HANG_SECONDS) -> None:
        """Waits until it has said this."""
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert self.process.poll() is None, self.end()
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def end(self) -> Ended:
        """Waits for its end."""
        try:
            code = self.process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        return Ended(code, self._out.read_text(), self.said)


@dataclass(frozen=True)
class Pod:
    """A pod: its environment, and a folder of its own. `prefix` is a command to run the client under."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    @property
    def zipapp(self) -> Path:
        """The client, as one file."""
        path = self.folder / "dsagent-init.pyz"
        if not path.exists():
            path.write_bytes(_built())
        return path

    @property
    def datasets(self) -> Path:
        """Where its datasets are linked."""
        return self.folder / "datasets"

    def having(self, **environment: str) -> "Pod":
        """The same with more in its environment."""
        return replace(self, environment={**self.environment, **environment})

    def variables(self) -> dict[str, str]:
        """All of its environment."""
        identity = {"POD_UID": UID, "POD_NAME": "train-0", "POD_NAMESPACE": "research"}
        mine = {"DSAGENT_DATASETS_DIR": str(self.datasets), "DSAGENT_DATA_DIR": "", "PATH": os.environ["PATH"]}
        return {**identity, **mine, **self.environment}

    def start(self, *arguments: str) -> Running:
        """Starts the client in its container."""
        out, err = self.folder / "out", self.folder / "err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            command = [*INTERRUPTIBLE, *self.prefix, sys.executable, "-I", "-S", str(self.zipapp), *arguments]
            process = subprocess.Popen(
                command,
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd="/",
                start_new_session=True,
            )
        return Running(process, out, err)

    def run(self, *arguments: str) -> Ended:
        """Runs it to its end, whatever that is."""
        return self.start(*arguments).end()

    def linked(self, name: str) -> str:
        """Where the link of a dataset leads."""
        return os.readlink(self.datasets / name)
