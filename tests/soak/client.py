"""A client of a soak: random requests, each with what must come of it."""

import fcntl
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.model import Model, TaskModel, Use
from tests.soak.world import Origin, StoredOrigin
from tests.support import trees
from tests.support.agents import AgentProcess, Reply
from tests.support.command import HANG_SECONDS, Dsctl

if TYPE_CHECKING:
    from collections.abc import Callable

PROBLEMS = "https://dsagent.io/problems/"
# How a task may fail here: its source changed, its worker was killed, or it is larger than the disk.
EXCUSED = frozenset(
    PROBLEMS + kind for kind in ("source-changed", "source-error", "worker-died", "insufficient-storage")
)
NO_LEASE = (404, 400)  # none at all, or only one of a process
TASKS, PROCESSES = 3, 3


@dataclass
class Shared:
    """What all threads of a soak share."""

    served: AgentProcess
    model: Model
    counts: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)
    # Who ends leases by force must not meet one that is being made: the model would not know whether it was before.
    leasing: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[Reply, bool]:
        """The agent's answer, and whether the request was sent more than once because an agent went away."""
        end = time.monotonic() + HANG_SECONDS
        again = False
        while True:
            try:
                reply = self.served.ask(method, path, body)
                if reply.status != 503:
                    return reply, again
            except OSError:
                again = True
            assert time.monotonic() < end, f"nobody answers {method} {path}"
            time.sleep(0.02)

    def get(self, path: str) -> Any:
        """The document of an answer that must be well."""
        reply, _ = self.ask("GET", path)
        assert reply.status == 200, (path, reply)
        return reply.json


class Client:
    """One thread: its own tasks and leases, and everybody's datasets."""

    def __init__(self, shared: Shared, number: int, seed: int) -> None:
        self.shared, self.model = shared, shared.model
        self.name = f"client{number}"
        self.random = random.Random(seed * 1000 + number)
        self.held: dict[str, int] = {}
        self._steps: dict[Callable[[], None], int] = {
            self.put: 20,
            self.wait: 20,
            self.put_again: 8,
            self.put_another: 2,
            self.delete: 12,
            self.lease: 10,
            self.renew: 5,
            self.release: 5,
            self.hold: 6,
            self.let_go: 5,
            self.evict: 6,
            self.evict_need: 2,
            self.run: 1,
            self.look: 6,
            self.verify: 2,
        }

    def step(self) -> None:
        """One random request."""
        step = self.random.choices(list(self._steps), list(self._steps.values()))[0]
        step()
        self.shared.counts[step.__name__] += 1

    def close(self) -> None:
        """Holds nothing open any more, whatever became of it."""
        for fd in self.held.values():
            os.close(fd)

    def put(self) -> None:
        free = [task for task in self._ids() if task not in self.model.tasks]
        if free:
            self._put(TaskModel(self.random.choice(free), self._body()))

    def put_again(self) -> None:
        if task := self._task():
            self._put(task)

    def put_another(self) -> None:
        task = self._task()
        if task and task.is_kept:
            body = {**task.body, "datasets": [{"source": "/nowhere"}]}
            assert self.shared.ask("PUT", f"/v1/tasks/{task.id}", body)[0].status == 409

    def wait(self) -> None:
        task = self._task()
        if task is None:
            return
        reply, _ = self.shared.ask("GET", f"/v1/tasks/{task.id}?wait={self.random.random():.2f}")
        if reply.status == 404 and not task.is_kept:
            del self.model.tasks[task.id]
            return
        assert reply.status == 200, (task, reply)
        self._seen(task, reply.json)

    def delete(self) -> None:
        if task := self._task():
            self._delete(task)

    def lease(self) -> None:
        """A lease by time, on something that is here; it must succeed where something else holds it."""
        found = self._something()
        if found is None:
            return
        dataset, version, certain = found
        seconds = self.random.uniform(0.3, 20)
        with self.shared.leasing:
            body = {"reference": f"{dataset}@{version}", "owner": self.name, "seconds": seconds}
            reply, _ = self.shared.ask("POST", "/v1/leases", body)
            if reply.status == 404:
                assert not certain or certain not in self.model.certain().values(), (dataset, version, reply)
                return
            assert reply.status == 200, reply
            self._leased(reply.json)

    def renew(self) -> None:
        with self.shared.leasing:
            if found := self._own_lease():
                dataset, version, until = found
                body = {"owner": self.name, "seconds": self.random.uniform(0.3, 10)}
                self.model.drop((dataset, version, self.name))  # it may end earlier from now on
                reply, again = self.shared.ask("PUT", f"/v1/leases/{dataset}@{version}", body)
                if reply.status in NO_LEASE:  # where it was asked twice, it may have ended by the first time
                    assert again or until <= time.time(), (found, reply)
                    del self.model.timed[dataset, version, self.name]
                    return
                assert reply.status == 200, reply
                self._leased(reply.json)

    def release(self) -> None:
        with self.shared.leasing:
            if found := self._own_lease():
                dataset, version, until = found
                self.model.drop((dataset, version, self.name))
                reply, again = self.shared.ask("DELETE", f"/v1/leases/{dataset}@{version}?owner={self.name}")
                over = again or until <= time.time()
                assert reply.status == 200 or (reply.status in NO_LEASE and over), (found, reply)
                del self.model.timed[dataset, version, self.name]

    def hold(self) -> None:
        """A lease of this process, taken over from the agent."""
        found = self._something()
        if found is None or len(self.held) >= PROCESSES:
            return
        dataset, version, certain = found
        body = {"reference": f"{dataset}@{version}", "owner": self.name, "seconds": None}
        reply, _ = self.shared.ask("POST", "/v1/leases", body)
        if reply.status == 404:
            assert not certain or certain not in self.model.certain().values(), (dataset, version, reply)
            return
        assert reply.status == 200, reply
        info = reply.json
        try:
            fd = os.open(self.shared.served.root / info["file"], os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # the agent was killed before
            return
        fcntl.flock(fd, fcntl.LOCK_SH)
        reply, _ = self.shared.ask("PUT", f"/v1/leases/{info['id']}/held")
        if reply.status == 404:
            os.close(fd)
            return
        assert reply.status == 200, reply
        self.held[info["id"]] = fd
        self.model.processes.add(info["id"])
        self.model.hold(info["id"], Use(dataset, version, self._path(dataset, version)))

    def let_go(self) -> None:
        """A process with a lease ends."""
        if self.held:
            lease = self.random.choice(list(self.held))
            use = self.model.certain()[lease]
            if self.random.random() < 0.3:
                self.model.assert_whole(use.dataset, use.version, use.path)
            self.model.drop(lease)
            self.model.processes.discard(lease)
            os.close(self.held.pop(lease))

    def evict(self) -> None:
        dataset = self.random.choice(self.datasets())
        if self.random.random() < 0.3:
            self._evict_by_force(dataset)
        elif self.random.random() < 0.1:
            done = self._dsctl().run("evict", dataset)
            assert done.code in (0, 7, 8, 13), done
        else:
            reply, _ = self.shared.ask("POST", "/v1/evict", {"reference": dataset})
            assert reply.status in (200, 404, 409), reply

    def evict_need(self) -> None:
        size = self.random.randrange(1 << 20, 24 << 20)
        if self.random.random() < 0.1:
            done = self._dsctl().run("evict", "--need", str(size))
            assert done.code in (0, 4, 7), done
            return
        reply, _ = self.shared.ask("POST", "/v1/evict", {"need": size, "dry_run": self.random.random() < 0.2})
        assert reply.status in (200, 507), reply

    def run(self) -> None:
        """A command with a dataset, as a process of its own; killed or not."""
        found = self._something()
        if found is None:
            return
        process = self._dsctl().start("run", f"{found[0]}@{found[1]}", "--", "sleep", "60")
        try:
            time.sleep(self.random.random())  # it may be anywhere in its life when it ends
        finally:
            os.killpg(process.pid, 9)
            process.communicate()

    def look(self) -> None:
        place = self.random.choice(["/v1/tasks", "/v1/datasets", "/v1/leases", "/v1/disk", "/v1/limits"])
        self.shared.get(place)

    def verify(self) -> None:
        """The agent's own reading of something that is certain."""
        uses = [use for use in self.model.certain().values() if use.until > time.time() + HANG_SECONDS]
        if uses:
            use = self.random.choice(uses)
            reply, _ = self.shared.ask("POST", "/v1/verify", {"reference": f"{use.dataset}@{use.version}"})
            assert reply.status == 200 or use not in self.model.certain().values(), (use, reply)
            assert b'"bad":[{' not in reply.body, reply

    def end(self, task: TaskModel) -> None:
        """Looks at what a task got, if it did, and deletes it."""
        reply, _ = self.shared.ask("GET", f"/v1/tasks/{task.id}")
        if reply.status == 404 and not task.is_kept:
            del self.model.tasks[task.id]
            return
        self._seen(task, reply.json)
        for one in task.ready or []:
            self.model.assert_whole(one["name"], one["version"], Path(one["path"]))
        self._delete(task)

    def assert_present(self, origin: Origin) -> None:
        """A task that asks now gets what the origin has now."""
        task = TaskModel(f"last-{origin.name}", {"owner": {"name": self.name}, "datasets": [{"source": origin.url}]})
        self._put(task)
        while task.ready is None:
            assert not task.failed, self.shared.get(f"/v1/tasks/{task.id}")
            self._seen(task, self.shared.get(f"/v1/tasks/{task.id}?wait=5"))
        assert trees.look(Path(task.ready[0]["path"])) == origin.present, f"{origin.name} is not as it is now"
        self._delete(task)

    def _put(self, task: TaskModel) -> None:
        reply, _ = self.shared.ask("PUT", f"/v1/tasks/{task.id}", task.body)
        assert reply.status == 200, (task, reply)
        self.model.tasks[task.id] = task
        if not task.is_kept:
            task.ready = None
        task.failed = False
        self._seen(task, reply.json)

    def _seen(self, task: TaskModel, info: dict[str, Any]) -> None:
        """What a task is said to be agrees with what it was."""
        shown = info["datasets"]
        for one in shown:
            assert one["state"] != "failed" or one["error"]["type"] in EXCUSED, one
            assert "No space left" not in str(one["error"]), one  # that is what promises are for
        if task.ready is not None and task.is_kept:
            assert [one["path"] for one in shown] == [one["path"] for one in task.ready], (task, info)
        task.failed = info["state"] == "failed"
        if task.failed:
            self.shared.counts["failed: " + next(o["error"]["title"] for o in shown if o["error"])] += 1
        if info["state"] == "ready" and task.ready is None:
            task.ready = shown
            if task.is_kept:
                for one in shown:
                    link = self.shared.served.root / "pods" / task.id / one["name"]
                    assert str(link.resolve()) == one["path"], (link, one)
                    self.model.hold((task.id, one["name"]), Use(one["name"], one["version"], Path(one["path"])))
                    self.shared.counts[one["outcome"]] += 1
                    self.shared.counts["evicted for others"] += len(one["evicted"])
            for asked, one in zip(task.body["datasets"], shown, strict=True):
                assert asked.get("version") in (None, one["version"]), (task, one)

    def _delete(self, task: TaskModel) -> None:
        for one in task.ready or []:
            if task.is_kept and self.random.random() < 0.3:
                self.model.assert_whole(one["name"], one["version"], Path(one["path"]))
            self.model.drop((task.id, one["name"]))
        reply, again = self.shared.ask("DELETE", f"/v1/tasks/{task.id}")
        assert reply.status == 204 or (reply.status == 404 and (again or not task.is_kept)), (task, reply)
        del self.model.tasks[task.id]
        assert self.shared.ask("GET", f"/v1/tasks/{task.id}")[0].status == 404

    def _leased(self, info: dict[str, Any]) -> None:
        dataset, version, until = info["dataset"], info["version"], datetime.fromisoformat(info["expires"]).timestamp()
        self.model.timed[dataset, version, self.name] = until
        self.model.doubtful.pop((dataset, version, self.name), None)
        reply, _ = self.shared.ask("GET", f"/v1/datasets?reference={dataset}@{version}")
        if reply.status == 404:
            assert until <= time.time(), (info, reply)
            return
        use = Use(dataset, version, Path(reply.json[0]["path"]), until)
        self.model.hold((dataset, version, self.name), use)

    def _evict_by_force(self, dataset: str) -> None:
        """Ends all leases by time on this dataset, or none, or, where an agent was killed beside it, some."""
        with self.shared.leasing:
            ended = {key: until for key, until in self.model.timed.items() if key[0] == dataset}
            certain = {key: use for key, use in self.model.certain().items() if key in ended}
            for key in ended:
                self.model.drop(key)
            reply, again = self.shared.ask("POST", "/v1/evict", {"reference": dataset, "force": True})
            assert reply.status in (200, 404, 409), reply
            if reply.status != 200 and not again:
                for key, use in certain.items():
                    self.model.hold(key, use)
                return
            for key, until in ended.items():
                del self.model.timed[key]
                if reply.status != 200:
                    self.model.doubtful[key] = until

    def _own_lease(self) -> tuple[str, str, float] | None:
        own = [(*key[:2], until) for key, until in self.model.timed.items() if key[2] == self.name]
        return self.random.choice(own) if own else None

    def _path(self, dataset: str, version: str) -> Path:
        """Where a version lies that is leased."""
        (found,) = self.shared.get(f"/v1/datasets?reference={dataset}@{version}")
        return Path(found["path"])

    def _something(self) -> tuple[str, str, Use | None] | None:
        """A version that is here, and why it must stay, if it must."""
        uses = list(self.model.certain().values())
        if uses and self.random.random() < 0.5:
            use = self.random.choice(uses)
            return use.dataset, use.version, use if use.until > time.time() + HANG_SECONDS else None
        listed = self.shared.get("/v1/datasets")
        if not listed:
            return None
        one = self.random.choice(listed)
        return one["dataset"], one["version"], None

    def _body(self) -> dict[str, Any]:
        wanted = self.random.sample(self.datasets(), self.random.choice([1, 1, 1, 2, 3]))
        body: dict[str, Any] = {"owner": {"name": self.name}, "datasets": [self._dataset(name) for name in wanted]}
        if self.random.random() < 0.1:
            body["keep_seconds"] = self.random.uniform(0.1, 2)
        if self.random.random() < 0.2:
            body["prefetch"] = True
        return body

    def _dataset(self, name: str) -> dict[str, Any]:
        origin = self.model.world.origin_of(name)
        asked: dict[str, Any] = {"source": origin.url, "name": name}
        if isinstance(origin, StoredOrigin) and self.random.random() < 0.3:
            asked["version"] = self.random.choice(origin.versions)
        elif self.random.random() < 0.1:
            asked["options"] = {"check": "content"}
        return asked

    def datasets(self) -> list[str]:
        """All names that a task may ask for."""
        return [*self.model.world.origins, "alias-s0", "alias-t0"]

    def _ids(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(TASKS)]

    def _task(self) -> TaskModel | None:
        own = [self.model.tasks[task] for task in self._ids() if task in self.model.tasks]
        return self.random.choice(own) if own else None

    def _dsctl(self) -> Dsctl:
        return Dsctl(self.shared.served.root, self.shared.served.environment)
