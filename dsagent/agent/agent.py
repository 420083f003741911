"""The agent: keeps tasks, and turns what they ask for into errands that tasks share."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from dsagent.agent.admission import Admission
from dsagent.agent.book import Book
from dsagent.agent.counts import Counts
from dsagent.agent.errand import Brought, Errand
from dsagent.agent.events import EventLog
from dsagent.agent.gate import Cancelled, FairGate, Share
from dsagent.agent.secrets import secrets_of, trace, without
from dsagent.agent.subject import about
from dsagent.agent.tasks import Part, Task, TaskSpec
from dsagent.core.errors import DsagentError, NotCached, NotPermitted, UsageError
from dsagent.core.eviction import Evicted
from dsagent.core.ports import CachedVersion
from dsagent.core.tasks import Owner, State, TaskInfo
from dsagent.service import pods
from dsagent.service.cache import bring, needed, present
from dsagent.service.leases import ProcessLease, hold
from dsagent.service.node import Meter, Node, log
from dsagent.service.origins import CacheRequest, Origin, PackedOrigin, resolve
from dsagent.service.recovery import recover, recover_calmly
from dsagent.service.results import CacheResult
from dsagent.service.space import check_directories, drop_dead

# A listing is good for those who ask within this time with the same credentials.
FRESH_SECONDS = 5.0
RESOLVERS = 8
UPKEEP_SECONDS = 60.0
EXPIRY_SECONDS = 2.0
PAUSE_SECONDS = 0.01
NAMED_TASKS = 8  # in the lines of the log about an errand
OWNER = "agent"


@dataclass(frozen=True)
class Shares:
    """What all flights of the node share: jobs at once, and tasks whose data are brought at once."""

    slots: int
    tasks: int


class Agent:
    """All tasks of a node. Methods may be called from any thread; they raise DsagentError.

    One lock guards all state; what takes time happens outside of it, in threads that report back.
    """

    def __init__(self, node: Node, shares: Shares, events: EventLog, trim: Callable[[], None]) -> None:
        self.node = node
        self.events = events
        self.counts = Counts()
        self.shares = shares
        self._trim = trim
        self._gate = FairGate(shares.slots)
        self._book = Book(node, events)
        self._lock = self._book.lock
        self._errands: dict[CacheRequest, Errand] = {}
        self._resolvers = ThreadPoolExecutor(RESOLVERS, "resolve")
        self._admission = Admission(node, shares.tasks, self._book, self._fly, self._refuse)
        self._flying: set[threading.Thread] = set()
        self._closing = threading.Event()
        self.recovered = False

    def start(self) -> None:
        """Brings the root into order, goes on with the tasks of before, and begins its upkeep."""
        self.node.prepare()
        recover(self.node)
        self._book.load()
        self._admission.start()
        for task in list(self._book.tasks.values()):
            self._resume(task)
        threading.Thread(target=self._keep_up, name="upkeep", daemon=True).start()
        self.recovered = True

    def put(self, spec: TaskSpec) -> TaskInfo:
        """Begins a task, or finds it under way; one that failed, or waits for its credentials, begins anew.

        A version that is named and is here is ready in the answer. Raises InUse if there is another task of this id.
        """
        task = self._book.enter(spec)
        if any(part.errand is None and part.result is None for part in task.parts):
            while not self._begin(task):  # its time was just over: this is a new one
                task = self._book.enter(spec)
            if task.state != "ready":  # else it has been written with its result
                self._book.save(task)
                for wanted in spec.wanted:
                    if wanted.request.name:
                        self._book.announce([task], wanted.request.name)
        return self._shown(task)

    def get(self, task_id: str) -> TaskInfo:
        """The task; raises NotCached if there is none."""
        with self._lock:
            return self._book.find(task_id).info()

    def spec(self, task_id: str) -> TaskSpec | None:
        """What a task was asked for, or None if there is none."""
        with self._lock:
            task = self._book.tasks.get(task_id)
            return task.spec if task else None

    def tasks(self, *states: State) -> list[TaskInfo]:
        """All tasks, or those in one of the states."""
        with self._lock:
            return [task.info() for task in self._book.tasks.values() if not states or task.state in states]

    def states(self) -> dict[str, State]:
        """The state of each task, by its id."""
        with self._lock:
            return {task.spec.id: task.state for task in self._book.tasks.values()}

    def owners(self) -> dict[str, Owner]:
        """Whose each task is, by its id."""
        with self._lock:
            return {task.spec.id: task.spec.owner for task in self._book.tasks.values()}

    def delete(self, task_id: str) -> None:
        """Ends a task and its leases; flights that nobody else needs are cancelled. Raises NotCached; what else it
        raises leaves the task to be ended once more.
        """
        self._book.end(task_id, self._leave)
        self._admission.wake()

    def wake(self) -> None:
        """Lets tasks that wait for space try again: something may have been freed."""
        self._admission.wake()

    def evicted(self, versions: Sequence[Evicted]) -> None:
        """Says what was evicted, and lets tasks that wait for space try again."""
        self.counts.gone(versions)
        for version in versions:
            self.events.add("evicted", version)
        self._admission.wake()

    @contextlib.contextmanager
    def working(self, meter: Meter) -> Iterator[Node]:
        """The node for a verb beside the flights, with a fair share of the workers as they have."""
        share = self._gate.share(prefetch=False)
        try:
            yield replace(self.node, meter=meter, gate=share)
        finally:
            share.close()

    def running(self) -> int:
        """How many flights are under way."""
        return len(self._flights())

    def close(self, seconds: float) -> None:
        """Lets flights under way end for up to `seconds`, then stops them; all that is unfinished is resumable."""
        self._closing.set()
        self._admission.close()
        deadline = time.monotonic() + seconds
        for thread in self._flights():
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            for errand in self._errands.values():
                errand.cancel()
        for thread in self._flights():
            thread.join(1.0)

    def _flights(self) -> list[threading.Thread]:
        """The threads of flights under way; inside the lock, for who begins one puts it there and starts it in one."""
        with self._lock:
            return list(self._flying)

    def _shown(self, task: Task) -> TaskInfo:
        with self._lock:
            return task.info()

    def _resume(self, task: Task) -> None:
        """Goes on with a task of an earlier run."""
        for part in task.parts:
            if part.result is None:
                continue
            path = pods.linked(self.node, task.spec.id, part.name)
            if path is None:
                part.result, part.claimed = None, ""
            else:  # the root may have been moved
                part.result = replace(part.result, path=path)
        self._begin(task)

    def _begin(self, task: Task) -> bool:
        """Finds or makes an errand for each part that has none; whether the task has not ended meanwhile.

        A version that is named takes no listing: it is looked for here and now.
        """
        quick = []
        with self._lock:
            if self._book.tasks.get(task.spec.id) is not task:
                return False
            for part in task.parts:
                if part.result is not None or part.errand is not None:
                    continue
                part.failed, part.error = False, None
                if part.wanted.secret and not part.wanted.credentials:
                    part.error = NotPermitted(
                        "open",
                        part.wanted.request.source.url,
                        "the agent was started anew and has no credentials any more",
                        "ask again with them, as a waiting init container does by itself",
                    )
                    continue
                part.errand, todo = self._join(part.wanted.complete(), task)
                if todo and part.wanted.request.version:
                    quick.append(todo)
                elif todo:
                    self._resolvers.submit(todo)
        for todo in quick:
            todo()
        if task.state != "ready":  # else that was said
            self._book.tell(task)
        return True

    def _join(self, request: CacheRequest, task: Task) -> tuple[Errand, Callable[[], None] | None]:
        """Inside the lock: the errand for a request, a new one unless one is under way or was just done, and what is
        to be done for it outside the lock.
        """
        todo = None
        errand = self._errands.get(request)
        # A person who has just changed the source sees it changed; many pods that start at once list it once.
        if errand is None or (errand.brought and not (task.spec.owner.uid and errand.is_recent(FRESH_SECONDS))):
            errand = self._errands[request] = Errand(request, task.spec.prefetch)
            todo = partial(self._resolve, errand)
        elif errand.brought:
            todo = partial(self._deliver_again, errand, errand.brought)
        elif errand.phase == "waiting":  # perhaps for tasks that have failed, which nobody admits
            self._admission.wake()
        errand.prefetch = errand.prefetch and task.spec.prefetch
        errand.tasks.add(task.spec.id)
        return errand, todo

    def _leave(self, part: Part, task_id: str) -> None:
        """Inside the lock: takes a task off its errand; one that nobody else needs is cancelled."""
        errand, part.errand = part.errand, None
        if errand is not None:
            errand.tasks.discard(task_id)
            if not errand.tasks and not errand.brought:
                errand.cancel()
                if self._errands.get(errand.request) is errand:
                    del self._errands[errand.request]

    def _resolve(self, errand: Errand) -> None:
        """Lists the source or reads the manifest: a hit is delivered, else the errand waits for its admission."""
        with self._failing(errand):
            origin = self._list(errand, self.node)
            hit = origin.hit(self.node.versions_of(origin.key))
            if hit is not None and not errand.request.pack_to:
                origin.prove()
                self._deliver(errand, Brought(hit, present(self.node, origin, hit)))
                return
            with self._lock:
                waiting = [task for task, _ in self._book.parts(errand)]
            self._book.announce(waiting, origin.key.name)
            check_directories(self.node.disk.measure(), origin.totals, str(origin.key))
            need, keep = needed(self.node, origin)
            with self._lock:
                if errand.phase == "resolving":  # else it was admitted while it was looked at again
                    errand.is_resolved(origin, need, keep)
            self._admission.wake()

    def _fly(self, errand: Errand) -> None:
        """Begins an admitted errand's flight in a thread of its own."""
        share = errand.share = self._gate.share(errand.prefetch)
        self.evicted(errand.evicted)
        thread = threading.Thread(target=self._bring, args=(errand, share), name="flight", daemon=True)
        with self._lock:
            self._flying.add(thread)
            thread.start()  # before anyone who ends the agent sees it: what has not begun cannot be waited for
            for task, _ in self._book.parts(errand):
                self._book.tell(task)

    def _bring(self, errand: Errand, share: Share) -> None:
        try:
            with self._failing(errand):
                result, (version, lease) = self._carry(errand, share)
                try:
                    self.evicted(result.evicted)
                    evicted = (*errand.evicted, *result.evicted)
                    self._deliver(errand, Brought(version, replace(result, evicted=evicted)))
                finally:
                    lease.release()
        finally:
            errand.land()
            with self._lock:
                self._flying.discard(threading.current_thread())
                last = not self._flying
                self._look_again(errand.flight)
            self._admission.wake()
            if last:
                self._trim()

    def _look_again(self, flight: str) -> None:
        """Inside the lock: what others want in another way, such as with other credentials, may be here now."""
        for other in self._errands.values():
            if other.phase == "waiting" and other.flight == flight:
                other.phase = "resolving"
                self._resolvers.submit(self._resolve, other)

    def _carry(self, errand: Errand, share: Share) -> tuple[CacheResult, tuple[CachedVersion, ProcessLease]]:
        node = replace(self.node, meter=errand.meter, gate=share)
        origin = errand.origin
        if origin is None or not errand.is_recent(FRESH_SECONDS):
            origin = self._list(errand, node)
        result, taken = bring(node, errand.request, origin, lambda version: (version, hold(node, version, OWNER)))
        self.counts.carried(result.fetched_bytes, result.seconds, isinstance(origin, PackedOrigin))
        return result, taken

    def _list(self, errand: Errand, node: Node) -> Origin:
        self.counts.listed()
        errand.listed = time.monotonic()
        return resolve(node, errand.request)

    def _deliver_again(self, errand: Errand, brought: Brought) -> None:
        with self._failing(errand):
            hit = replace(brought.result, outcome="hit", fetched_bytes=0, reused_files=0, evicted=(), seconds=0.0)
            self._deliver(errand, brought._replace(result=hit))

    def _deliver(self, errand: Errand, brought: Brought) -> None:
        """Leases what an errand has brought to all that ask for it. What was evicted meanwhile is brought anew."""
        name = brought.version.dataset.name
        while True:
            with self._lock:
                waiting = [(task, part) for task, part in self._book.parts(errand) if self._claim(task, part, name)]
                if not waiting:
                    if errand.brought is None:
                        self.counts.brought(brought.result)
                    errand.settle(brought)
                    return
            try:
                with self._book.linking(task for task, _ in waiting) as living:
                    pods.link(self.node, brought.version, [(task.spec.id, name) for task in living])
                    for task, part in waiting:
                        self._finish(task, part, brought.result)
            except NotCached:
                self._again(errand)
                return

    def _claim(self, task: Task, part: Part, name: str) -> bool:
        """Inside the lock: whether the part may have the task's link of this name; it fails if another one has it."""
        if any(other.claimed == name for other in task.parts if other is not part):
            part.error = UsageError(
                "put", f"the task {task.spec.id}", f"two of its datasets are named {name}", "give one of them a name"
            )
            part.failed = True
            self._leave(part, task.spec.id)
            self._book.tell(task)
            return False
        part.claimed = name
        return True

    def _finish(self, task: Task, part: Part, result: CacheResult) -> None:
        with self._lock:
            if self._book.tasks.get(task.spec.id) is not task:  # its end takes the link away
                return
            errand, part.result, part.error, part.errand = part.errand, result, None, None
            others = [other.errand for other in task.parts if other.errand is not None]
            if errand is not None and errand not in others:
                errand.tasks.discard(task.spec.id)
        if any(other.phase == "waiting" for other in others):  # for this one, perhaps
            self._admission.wake()
        self._book.save(task)
        self._book.tell(task)

    def _again(self, errand: Errand) -> None:
        """What an errand found is gone: those who wait for it get a new one."""
        with self._lock:
            if self._errands.get(errand.request) is errand:
                del self._errands[errand.request]
            for task, part in self._book.parts(errand):
                part.errand, todo = self._join(errand.request, task)
                if todo:
                    self._resolvers.submit(todo)

    def _refuse(self, task: Task, error: Exception, for_good: bool) -> None:
        """There is no room for a task now, or never will be."""
        known = _as_error(error, [])  # it is about the disk, and opens no source
        with self._lock:
            for part in task.parts:
                if part.result is None:
                    part.error = known
                    if for_good:
                        part.failed = True
                        self._leave(part, task.spec.id)
        self._book.tell(task)

    @contextlib.contextmanager
    def _failing(self, errand: Errand) -> Iterator[None]:
        """Whatever ends an errand is told to all that wait for it."""
        with about(**self._subject(errand)):
            try:
                yield
            except Exception as error:  # noqa: BLE001 - the thread's last word
                secrets = secrets_of(errand.request.source, errand.request.pack_to)
                self._fail(errand, without(_as_error(error, secrets), secrets))

    def _subject(self, errand: Errand) -> dict[str, str]:
        """What an errand's lines in the log are about; there may be very many tasks."""
        request = errand.request
        with self._lock:
            known = sorted(errand.tasks & self._book.tasks.keys())[:NAMED_TASKS]
            tasks = [self._book.tasks[task_id].spec for task_id in known]
        return {
            "task": ",".join(spec.id for spec in tasks),
            "dataset": f"{request.namespace}/{request.name or request.source.url}",
            "pod": ",".join(f"{spec.owner.namespace}/{spec.owner.name}" for spec in tasks),
        }

    def _fail(self, errand: Errand, error: DsagentError) -> None:
        if self._closing.is_set():  # stopped, not failed: it goes on after the restart
            return
        if not isinstance(error, Cancelled):
            self.counts.failed(error)
        with self._lock:
            errand.phase, errand.origin = "failed", None
            if self._errands.get(errand.request) is errand:
                del self._errands[errand.request]
            failed = self._book.parts(errand)
            for _, part in failed:
                part.error, part.failed, part.errand = error, True, None
        for task, _ in failed:
            owner = task.spec.owner
            with about(task=task.spec.id, pod=f"{owner.namespace}/{owner.name}"):
                log.warning("a dataset failed: %s", error)
            self._book.tell(task)

    def _keep_up(self) -> None:
        due = time.monotonic() + UPKEEP_SECONDS
        while not self._closing.wait(EXPIRY_SECONDS):
            try:
                self._expire()
                if time.monotonic() > due:
                    due = time.monotonic() + UPKEEP_SECONDS
                    self._tidy()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                log.warning("upkeep: %s", _as_error(error, []))

    def _expire(self) -> None:
        """Ends tasks that were to be kept for some time, and forgets listings that are not fresh any more."""
        now = self.node.clock.now()
        with self._lock:
            over = [task for task in self._book.tasks.values() if task.expires is not None and task.expires < now]
            for request, errand in list(self._errands.items()):
                if errand.brought and not errand.is_recent(FRESH_SECONDS):
                    del self._errands[request]
        for task in over:
            try:
                self._book.end(task.spec.id, self._leave, task)
                self._admission.wake()
            except NotCached:
                continue
            except DsagentError as error:  # the others end all the same
                log.warning("task %s cannot be ended: %s", task.spec.id, error)

    def _tidy(self) -> None:
        # Whoever asks meanwhile would wait for the interpreter at each system call.
        recover_calmly(self.node, pause=lambda: time.sleep(PAUSE_SECONDS))
        if self.node.catalog.reservations():  # a decision looks at every version, and lets nobody lease meanwhile
            with self.node.catalog.decide() as decision:
                drop_dead(self.node, decision)


def _as_error(error: Exception, secrets: list[str]) -> DsagentError:
    if isinstance(error, DsagentError):
        return error
    log.error("this is how it came about: %s", trace(error, secrets))
    cause = f"{type(error).__name__}: {error}"
    return DsagentError("bring", "a dataset", cause, "this is a bug in dsagent; its log shows where it is")
