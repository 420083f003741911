"""The tasks of a node, in memory and in their files, and the links by which they lease what they use."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from dsagent.agent.errand import Errand
from dsagent.agent.events import EventLog
from dsagent.agent.tasks import Part, Task, TaskFiles, TaskSpec, new_task
from dsagent.core.errors import DsagentError, InUse, NotCached
from dsagent.service import pods
from dsagent.service.node import Node


class Book:
    """All tasks. `lock` guards them and their parts; `changed`, which is on it, is notified whenever one changes.

    What takes time happens outside the lock. An end waits until no thread makes links for the task any more, and a
    new task of the same id until the end is over.
    """

    def __init__(self, node: Node, events: EventLog) -> None:
        self._node = node
        self._events = events
        self._files = TaskFiles(node.root / "tasks")
        self._saving = threading.Lock()
        self._ending: set[str] = set()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.tasks: dict[str, Task] = {}

    def load(self) -> None:
        """Takes over the tasks of an earlier run."""
        for task in self._files.read():
            self.tasks[task.spec.id] = task

    def enter(self, spec: TaskSpec) -> Task:
        """The task of this id, with the newest credentials; raises InUse if it asks for other datasets."""
        with self.changed:
            self.changed.wait_for(lambda: spec.id not in self._ending)
            task = self.tasks.get(spec.id)
            if task is not None and task.spec != spec:
                raise InUse("put", f"the task {spec.id}", "it asks for other datasets already", "delete it first")
            if task is None:
                task = self.tasks[spec.id] = new_task(spec)
            for part, wanted in zip(task.parts, spec.wanted, strict=True):
                part.wanted = wanted
            task.spec = spec
        return task

    def find(self, task_id: str) -> Task:
        """Inside the lock: a task; raises NotCached if there is none."""
        if task_id not in self.tasks:
            raise NotCached("find", f"the task {task_id}", "there is none", "see them with: dsctl tasks")
        return self.tasks[task_id]

    def parts(self, errand: Errand) -> list[tuple[Task, Part]]:
        """Inside the lock: the parts of tasks that wait for an errand."""
        tasks = [self.tasks[task_id] for task_id in errand.tasks if task_id in self.tasks]
        return [(task, part) for task in tasks for part in task.parts if part.errand is errand]

    def end(self, task_id: str, leave: Callable[[Part, str], None], only: Task | None = None) -> None:
        """Ends a task and its leases, after `leave` has taken each part off its errand, inside the lock. Raises
        NotCached, also if it is not the one that was meant by `only`, but a new one of the same id; what else it raises
        leaves the task to be ended once more.
        """
        with self.changed:
            task = self.find(task_id)
            if only is not None and only is not task:
                raise NotCached("end", f"the task {task_id}", "it has ended", "see those that are there: dsctl tasks")
            del self.tasks[task_id]
            self._ending.add(task_id)
            for part in task.parts:
                leave(part, task_id)
            self.changed.notify_all()
            self.changed.wait_for(lambda: not task.linking)
        try:
            # Its file last: after a kill between the two it is there to be ended, or nobody could end its leases.
            pods.unlink(self._node, task_id)
            with self._saving:
                self._files.remove(task_id)
        except DsagentError:
            with self.lock:
                self.tasks[task_id] = task
                for part in task.parts:
                    part.result = None  # its lease may be gone
            raise
        finally:
            with self.changed:
                self._ending.discard(task_id)
                self.changed.notify_all()
        self._events.add("deleted", {"id": task_id}, task_id, task.spec.owner)

    def announce(self, tasks: Iterable[Task], name: str) -> None:
        """Makes the links that dangle until the data are there."""
        with self.linking(tasks) as living:
            for task in living:
                pods.announce(self._node, task.spec.id, name, task.spec.waits)

    @contextlib.contextmanager
    def linking(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        """Those of the tasks that have not ended; their ends wait, and take away what is linked meanwhile."""
        with self.lock:
            living = [task for task in tasks if self.tasks.get(task.spec.id) is task]
            for task in living:
                task.linking += 1
        try:
            yield living
        finally:
            with self.changed:
                for task in living:
                    task.linking -= 1
                self.changed.notify_all()

    def _date(self, task: Task) -> None:
        """Inside the lock: a task that is ready or has failed is kept for as long as was asked for."""
        over = task.state in ("ready", "failed")
        if not over or task.spec.keep_seconds is None:
            task.expires = None
        elif task.expires is None:
            task.expires = self._node.clock.now() + timedelta(seconds=task.spec.keep_seconds)

    def save(self, task: Task) -> None:
        """Writes a task as it is now, unless it was deleted."""
        with self._saving:
            with self.lock:
                self._date(task)
            if self.tasks.get(task.spec.id) is task:
                self._files.write(task)

    def tell(self, task: Task) -> None:
        """Says that a task has changed."""
        with self.changed:
            self._date(task)
            info = task.info()
            self.changed.notify_all()
        self._events.add("task", info, info.id, info.owner)
