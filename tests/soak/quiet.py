"""What is compared when nothing happens: tasks, leases, contents, sizes, promises, processes."""

import contextlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.soak.client import Shared
from tests.support import processes
from tests.support.command import HANG_SECONDS

SECTOR = 512
# A directory may have grown by a block since it was measured, or the next version's may be laid out otherwise.
SLACK_A_DIRECTORY = 4096
MARGIN_SECONDS = 1.0
FULL = "insufficient-storage"


class Quiet:
    """Looks at an agent that nobody asks for anything."""

    def __init__(self, shared: Shared, mark: str) -> None:
        self._shared, self._model, self._root, self._mark = shared, shared.model, shared.served.root, mark

    def settle(self) -> None:
        """Waits until every task is ready, has failed, or waits for space."""
        assert self._shared.ask("PATCH", "/v1/limits", {"bandwidth": 0})[0].status == 200
        self.until(lambda: not self._moving(), lambda: f"these do not come to an end: {self._moving()}")
        # Those of tasks that were deleted end at their next file, or well.
        self.until(lambda: not self._flights(), lambda: f"{self._flights()} flights are for nobody")
        self.until(lambda: not self._running(), lambda: f"these still run: {self._running()}")

    def check(self) -> None:
        """All of it; anew if a task that waited for space has begun meanwhile, as leases by time end."""
        while True:
            self.settle()
            before = self._moved()
            try:
                self._check()
            except AssertionError:
                if self._moved() == before:
                    raise
            else:
                return

    def _check(self) -> None:
        self._check_tasks()
        self._check_leases()
        self._check_versions()
        self._check_space()
        self._check_log()

    def _moving(self) -> list[Any]:
        return [
            task
            for task in self._shared.get("/v1/tasks")
            if task["state"] not in ("ready", "failed")
            and not any(one["error"] and FULL in one["error"]["type"] for one in task["datasets"])
        ]

    def _flights(self) -> int:
        (number,) = self._metrics("dsagent_flights ")
        return int(float(number.rpartition(" ")[2]))

    def _moved(self) -> list[str]:
        """What has another value when anything came, went or began."""
        return self._metrics("dsagent_flights ", "dsagent_datasets_", "dsagent_evicted_", "dsagent_errors_")

    def _metrics(self, *names: str) -> list[str]:
        reply, _ = self._shared.ask("GET", "/metrics")
        return [line for line in reply.body.decode().splitlines() if line.startswith(names)]

    def _running(self) -> dict[int, str]:
        """Processes beside the agent."""
        process = self._shared.served.process
        return {pid: line for pid, line in processes.marked(self._mark).items() if not process or pid != process.pid}

    def _check_tasks(self) -> None:
        """Those that were put and not deleted are there, as ready as they were; their links lead to their data."""
        shown = {task["id"]: task for task in self._shared.get("/v1/tasks")}
        for task in list(self._model.tasks.values()):
            if not task.is_kept and task.id not in shown:
                del self._model.tasks[task.id]
                continue
            assert task.id in shown, f"{task} is lost"
            if task.ready is not None and task.is_kept:
                found = [(one["state"], one["path"]) for one in shown[task.id]["datasets"]]
                assert found == [("ready", one["path"]) for one in task.ready], (task, shown[task.id])
        assert shown.keys() <= self._model.tasks.keys(), (shown.keys(), self._model.tasks.keys())
        files = {path.stem for path in self._root.glob("tasks/*")}
        assert shown.keys() <= files, f"these would not outlive the agent: {shown.keys() - files}"
        assert files <= self._now("/v1/tasks"), f"these have ended: {files - self._now('/v1/tasks')}"
        linked = {path.name for path in self._root.glob("pods/*")}
        assert linked <= self._now("/v1/tasks") | {""}, f"these tasks have ended: {linked - shown.keys()}"

    def _now(self, path: str) -> set[str]:
        return {one["id"] for one in self._shared.get(path)}

    def _check_leases(self) -> None:
        """Each that is certain is listed, and each that is listed is somebody's."""
        self._model.assert_in_place()
        now = time.time()
        listed = self._shared.get("/v1/leases")
        timed = {
            (one["dataset"], one["version"], one["owner"]): datetime.fromisoformat(one["expires"]).timestamp()
            for one in listed
            if one["expires"]
        }
        for key, until in self._model.timed.items():
            assert until < now + MARGIN_SECONDS or abs(timed.get(key, 0) - until) < 0.01, (key, until, timed)
        unknown = timed.keys() - self._model.timed.keys() - self._model.doubtful.keys()
        assert not unknown, (unknown, self._model.timed)
        for key, until in list(self._model.timed.items()):
            if until < now:
                del self._model.timed[key]
                self._model.drop(key)
        held = {one["id"] for one in listed if not one["expires"] and not one["id"].startswith("pods/")}
        assert held >= self._model.processes, f"these processes' leases are lost: {self._model.processes - held}"
        self.until(lambda: self._held() == self._model.processes, lambda: f"nobody's leases: {self._held()}")
        tasks = {one["id"].removeprefix("pods/") for one in listed if one["id"].startswith("pods/")}
        assert tasks <= self._model.tasks.keys(), (tasks, self._model.tasks.keys())
        ready = {task.id for task in self._model.tasks.values() if task.ready is not None and task.is_kept}
        assert ready <= tasks, f"these tasks have no lease: {ready - tasks}"

    def _held(self) -> set[str]:
        leases = self._shared.get("/v1/leases")
        return {one["id"] for one in leases if not one["expires"] and not one["id"].startswith("pods/")}

    def _check_versions(self) -> None:
        """Catalog, listing and disk have the same versions; each is a content that its source has had."""
        listed = {one["path"]: one for one in self._shared.get("/v1/datasets")}
        folders = {str(path / "data") for path in self._root.glob("versions/*/*/*")}
        with contextlib.closing(sqlite3.connect(f"file:{self._root}/catalog.sqlite?mode=ro", uri=True)) as catalog:
            rows = catalog.execute("SELECT namespace, name, id FROM versions").fetchall()
        assert folders == listed.keys(), (folders, listed.keys())
        assert folders == {str(self._root / "versions" / Path(*row) / "data") for row in rows}, (folders, rows)
        for path, one in listed.items():
            self._model.assert_whole(one["dataset"], one["version"], Path(path))
        for name, number in Counter((one["dataset"], one["version"]) for one in listed.values()).items():
            assert number == 1, f"{name} is there {number} times"

    def _check_space(self) -> None:
        """What the ledger says of the versions is what they take; nothing is promised; what is free is free."""
        # What dead flights were promised is dropped by whoever asks for room; upkeep does it, too, in its time.
        assert self._shared.ask("POST", "/v1/evict", {"need": 1})[0].status in (200, 507)
        self.until(lambda: self._disk()["reserved"] == 0, lambda: f"promised to nobody: {self._disk()}")
        listed = self._shared.get("/v1/datasets")
        for dataset in {one["dataset"] for one in listed}:
            versions = [one for one in listed if one["dataset"] == dataset]
            said = sum(one["allocated_bytes"] for one in versions)
            taken, directories = usage([Path(one["path"]) for one in versions])
            assert abs(said - taken) <= directories * SLACK_A_DIRECTORY, (dataset, said, taken, directories)
        disk = self._disk()
        assert disk["used"] == sum(one["allocated_bytes"] for one in listed), (disk, listed)
        found = os.statvfs(self._root)
        assert disk["total"] == found.f_blocks * found.f_frsize, disk
        assert disk["free"] <= found.f_bavail * found.f_frsize, (disk, found)
        assert not list(self._root.glob("trash/*"))
        staged, _ = usage(list(self._root.glob("staging/*")))
        rest, _ = usage([self._root / part for part in ("versions", "staging", "pods", "tasks", "locks")])
        assert staged <= rest <= (found.f_blocks - found.f_bavail) * found.f_frsize

    def _disk(self) -> Any:
        return self._shared.get("/v1/disk")

    def _check_log(self) -> None:
        """No line of the log says that something is wrong with the agent itself."""
        text = self._shared.served.log.read_text()
        for bad in ("bug in dsagent", "Traceback", "the agent ends", '"level":"error"', "a task is forgotten"):
            assert bad not in text, text[max(0, text.index(bad) - 2000) :][:4000]

    @staticmethod
    def until(condition: Callable[[], bool], said: Callable[[], str]) -> None:
        end = time.monotonic() + HANG_SECONDS
        while not condition():
            assert time.monotonic() < end, said()
            time.sleep(0.02)


def usage(places: list[Path]) -> tuple[int, int]:
    """Bytes that trees take on the disk together, each file once, and how many directories they have."""
    seen: set[int] = set()
    size = directories = 0
    pending = [place for place in places if place.exists()]
    for place in pending:
        found = place.stat()
        size += found.st_blocks * SECTOR
        directories += 1
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                elif entry.inode() not in seen:
                    seen.add(entry.inode())
                    size += entry.stat(follow_symlinks=False).st_blocks * SECTOR
    return size, directories
