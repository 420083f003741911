"""Who may begin: a task whose datasets all fit together, pods before prefetches, in the order in which they came."""

import threading
from collections.abc import Callable, Collection, Mapping

from dsagent.agent.book import Book
from dsagent.agent.errand import Errand
from dsagent.agent.tasks import Task
from dsagent.core.errors import DsagentError, InsufficientStorage
from dsagent.core.space import Space
from dsagent.service.node import Node
from dsagent.service.space import could_fit, reserve

RETRY_SECONDS = 2.0  # leases of processes end without a word


class Admission:
    """A thread that promises space to waiting tasks: all their datasets at once, or none.

    `fly` begins an errand's flight; `refuse` tells a task that there is no room for it, now or for good. The book's
    lock guards the errands' phases too.
    """

    def __init__(
        self,
        node: Node,
        at_once: int,
        book: Book,
        fly: Callable[[Errand], None],
        refuse: Callable[[Task, Exception, bool], None],
    ) -> None:
        self._node = node
        self._at_once = at_once
        self._lock = book.lock
        self._tasks = book.tasks
        self._fly = fly
        self._refuse = refuse
        self._wake = threading.Event()
        self._closing = False

    def start(self) -> None:
        """Begins."""
        threading.Thread(target=self._run, name="admission", daemon=True).start()

    def wake(self) -> None:
        """Something has changed: look again."""
        self._wake.set()

    def close(self) -> None:
        """Admits nobody any more."""
        self._closing = True
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            waiting = self._waiting()
            self._wake.wait(RETRY_SECONDS if waiting else None)
            self._wake.clear()
            for task in self._waiting():
                if not self._closing:
                    self._try(task)

    def _waiting(self) -> list[Task]:
        """The tasks of which all sizes are known and some data are to be brought."""
        with self._lock:
            waiting = []
            for task in self._tasks.values():
                phases = {part.errand.phase for part in task.parts if part.errand is not None}
                if "waiting" in phases and "resolving" not in phases and task.state != "failed":
                    waiting.append(task)
            return sorted(waiting, key=lambda task: task.spec.prefetch)

    def _try(self, task: Task) -> None:
        with self._lock:
            running = {other.spec.id for other in self._tasks.values() if other.state == "running"}
            errands = {p.errand for p in task.parts if p.errand is not None and p.errand.phase == "waiting"}
            if not errands or (len(running) >= self._at_once and task.spec.id not in running):
                return
        needs = {errand.flight: errand.need for errand in errands}
        keep = {version for errand in errands for version in errand.keep}
        try:
            self._node.prepare()
            if not all(errand.admit(self._node) for errand in errands):
                for errand in errands:
                    errand.land()
                return  # it is looked at again when the other's flight is over
            evicted = reserve(self._node, needs, _subject(task, errands), keep)
        except Exception as error:  # noqa: BLE001 - what is wrong with one task must not end the admission of others
            for errand in errands:
                errand.land()
            self._refuse(task, error, self._is_for_good(error, needs))
            return
        with self._lock:
            for errand in errands:
                errand.phase = "running"
                for part in task.parts:
                    part.error = None
        for index, errand in enumerate(errands):
            errand.evicted = tuple(evicted) if index == 0 else ()
            self._fly(errand)

    def _is_for_good(self, error: Exception, needs: Mapping[str, Space]) -> bool:
        try:
            return isinstance(error, InsufficientStorage) and not could_fit(self._node, needs)
        except DsagentError:
            return False


def _subject(task: Task, errands: Collection[Errand]) -> str:
    """What space is asked for: a dataset by its name, several by their task."""
    names = [str(errand.origin.key) for errand in errands if errand.origin is not None]
    return names[0] if len(names) == 1 else f"the {len(errands)} datasets of task {task.spec.id}"
