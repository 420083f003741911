"""A soak: random use of a real agent on a small filesystem, beside a model of what must hold."""

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.soak.chaos import Chaos
from tests.soak.client import Client, Shared
from tests.soak.model import Model
from tests.soak.quiet import Quiet, usage
from tests.soak.world import World
from tests.support import processes
from tests.support.agents import AgentProcess
from tests.support.devices import ext4

DISK = 16 << 20
CLIENTS = 4
PHASE_SECONDS = 5.0
# At the end the filesystem is as it was, but for directories that have grown, files of locks, and the catalog.
LEFT = 1 << 20
LINES = 400  # of the agent's log, shown when something does not hold


class Soak:
    """One soak in `place`, for about `seconds`. Raises AssertionError for what does not hold."""

    def __init__(self, place: Path, seed: int, seconds: float) -> None:
        self._place, self._seed, self._seconds = place, seed, seconds
        self.mark = uuid.uuid4().hex
        self.counts: Counter[str] = Counter()
        self._failures: list[BaseException] = []

    def run(self) -> None:
        """All of it; at the end no process is left."""
        world = World(self._place / "world", self._seed)
        with ext4(self._place / "image", self._place / "disk", DISK, "-N", "3000") as disk:
            environment = {processes.MARK: self.mark, "PYTHONFAULTHANDLER": "1"}
            served = AgentProcess(disk, ("--keep-free", "0B"), environment).start()
            try:
                self._soak(Shared(served, Model(world), self.counts))
            except BaseException:
                _show(served)
                raise
            finally:
                served.end()
            left = processes.marked(self.mark)
            assert not left, left

    def _soak(self, shared: Shared) -> None:
        quiet, chaos = Quiet(shared, self.mark), Chaos(shared, self._seed)
        clients = [Client(shared, number, self._seed) for number in range(CLIENTS)]
        try:
            self._use(shared, clients, quiet, chaos)
        finally:
            for client in clients:
                client.close()

    def _use(self, shared: Shared, clients: list[Client], quiet: Quiet, chaos: Chaos) -> None:
        free = os.statvfs(shared.served.root).f_bavail
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            self._phase(shared, [client.step for client in clients] + [chaos.step])
            quiet.check()
            self.counts["quiet points"] += 1
        self._wind_up(shared, clients, quiet)
        found = os.statvfs(shared.served.root)
        lost = (free - found.f_bavail) * found.f_frsize
        rest = {path.name: usage([path])[0] for path in shared.served.root.iterdir() if path.is_dir()}
        assert lost <= LEFT, f"{lost} bytes are nobody's: {rest}"
        assert shared.served.stop() == 0

    def _phase(self, shared: Shared, steps: list[Callable[[], None]]) -> None:
        """Everybody at once, for a while."""
        shared.stop.clear()
        everybody = [*steps, lambda: self._watch(shared)]
        threads = [threading.Thread(target=self._repeat, args=(shared, step)) for step in everybody]
        for thread in threads:
            thread.start()
        shared.stop.wait(PHASE_SECONDS)
        shared.stop.set()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _repeat(self, shared: Shared, step: Callable[[], None]) -> None:
        try:
            while not shared.stop.is_set():
                step()
        except BaseException as error:  # noqa: BLE001 - the thread's last word
            self._failures.append(error)
            shared.stop.set()

    @staticmethod
    def _watch(shared: Shared) -> None:
        shared.model.assert_in_place()
        time.sleep(0.005)  # it leaves the interpreter to the others

    def _wind_up(self, shared: Shared, clients: list[Client], quiet: Quiet) -> None:
        """All leases end, whoever waits gets what it waits for, and what is evicted leaves nothing behind."""
        model = shared.model
        for client in clients:
            while client.held:
                client.let_go()
        for dataset, version, owner in list(model.timed):
            model.drop((dataset, version, owner))
            shared.ask("DELETE", f"/v1/leases/{dataset}@{version}?owner={owner}")
        model.timed.clear()
        assert shared.served.stop() == 0
        shared.served.flags = ("--keep-free", "0B")
        shared.served.start()
        while model.tasks:
            quiet.until(lambda: bool(self._ended(shared)), lambda: f"nobody goes on: {shared.get('/v1/tasks')}")
            for task in self._ended(shared):
                clients[0].end(model.tasks[task])
        for origin in model.world.origins.values():
            clients[0].assert_present(origin)
        quiet.check()
        for one in shared.get("/v1/datasets"):
            reply, _ = shared.ask("POST", "/v1/evict", {"reference": f"{one['dataset']}@{one['version']}"})
            assert reply.status == 200, reply
        shared.ask("POST", "/v1/evict", {"need": shared.get("/v1/disk")["capacity"] - 1})
        quiet.check()
        for part in ("versions", "staging", "trash", "pods", "tasks"):
            left = list((shared.served.root / part).glob("*"))
            assert not left, left

    @staticmethod
    def _ended(shared: Shared) -> list[str]:
        """The tasks that wait for nothing any more; those that are gone are forgotten."""
        shown = {task["id"]: task["state"] for task in shared.get("/v1/tasks")}
        for task in [task for task in shared.model.tasks if task not in shown]:
            assert not shared.model.tasks[task].is_kept, task
            del shared.model.tasks[task]
        return [task for task, state in shown.items() if state in ("ready", "failed")]


def _show(served: AgentProcess) -> None:
    """Prints where an agent's threads are, and what it said last."""
    if served.process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            served.process.send_signal(signal.SIGABRT)
            served.process.wait(timeout=5)
    print("".join(served.log.read_text().splitlines(keepends=True)[-LINES:]))
