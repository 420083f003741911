"""Kills a command at a chosen moment, and says what was under way when it died."""

import os
import random
import signal
import threading
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support import processes, trees
from tests.support.command import Dsctl, Process

GROUP, PARENT, WORKER = "group", "parent", "worker"


@dataclass(frozen=True)
class Moment:
    """When to kill: as soon as `step` begins, or once it has begun and `file` is staged."""

    step: str
    file: bytes = b""


@dataclass(frozen=True)
class Death:
    """What a kill met. `steps` are all that had begun; `staged` files lay in the flight's folder afterwards."""

    target: str
    killed: bool
    code: int
    steps: tuple[str, ...]
    staged: int
    errors: str

    @property
    def step(self) -> str:
        """The step under way."""
        return self.steps[-1] if self.steps else ""

    @property
    def mid_fetch(self) -> bool:
        """Between the first staged file and the commit."""
        return self.killed and self.step == "fetch" and self.staged > 0


def kill(dsctl: Dsctl, target: str, moment: Moment, *arguments: str | Path) -> Death:
    """Runs a command with -v and kills it at `moment`.

    Asserts that no process of it is left once the flight's lock is free.
    """
    mark = uuid.uuid4().hex
    marked = replace(dsctl, environment={**dsctl.environment, processes.MARK: mark})
    process = marked.start("-v", *arguments)
    steps = _Steps(process)
    try:
        killed = steps.wait_for(moment.step) and _wait_for_file(dsctl, process, moment.file) and _kill(process, target)
        # A worker's death is noticed by its parent, which then ends by itself.
        code = process.wait(timeout=60)
        processes.wait_for_locks(dsctl.root / "locks")
        left = processes.marked(mark)
        assert not left, f"still running after the lock was free: {left}"
    finally:
        for pid in processes.marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        steps.close()
    staged = sum(map(trees.count_files, dsctl.root.glob("staging/*/data")))
    return Death(target, killed, code, tuple(steps.seen), staged, steps.text)


class _Steps:
    """Reads the steps that a command says on standard error."""

    def __init__(self, process: Process) -> None:
        self.seen: list[str] = []
        self.text = ""
        self._process = process
        self._news = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait_for(self, step: str) -> bool:
        """Whether `step` has begun; False if the command ended without it."""
        with self._news:
            self._news.wait_for(lambda: step in self.seen or self._ended)
            return step in self.seen

    def close(self) -> None:
        self._thread.join()
        assert self._process.stderr is not None
        assert self._process.stdout is not None
        self._process.stderr.close()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._news:
                text = line.decode(errors="replace")
                self.text += text
                if text.startswith("step: "):
                    self.seen.append(text.removeprefix("step: ").strip())
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


def _wait_for_file(dsctl: Dsctl, process: Process, file: bytes) -> bool:
    """Whether it still runs when `file` is staged."""
    while process.poll() is None:
        if not file or any(dsctl.root.glob(f"staging/*/data/{os.fsdecode(file)}")):
            return True
        time.sleep(0.0005)
    return False


def _kill(process: Process, target: str) -> bool:
    pids = processes.children(process.pid) if target == WORKER else [process.pid]
    if process.poll() is not None or not pids:
        return False
    try:
        if target == GROUP:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(random.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
