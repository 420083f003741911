"""What Datasets ask of a node without a pod: to have them before anyone asks, and to let go of what is deleted."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from dsagent.adapters.kubernetes.watch import Heard
from dsagent.agent.agent import Agent
from dsagent.agent.tasks import TaskSpec
from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import DsagentError, InUse, NotCached
from dsagent.entrypoints.serve.kubernetes.datasets import AnyDataset, Datasets
from dsagent.service.evict import evict

log = logging.getLogger("dsagent")

PREFIX = "prefetch-"
LOOK_SECONDS = 30.0
SOON_SECONDS = 2.0
END_SECONDS = 5.0


class Keeper:
    """Keeps a task for each Dataset that this node is to prefetch, and evicts unused versions of deleted ones. `spec`
    makes such a task.
    """

    def __init__(self, node: str, agent: Agent, spec: Callable[[str, AnyDataset], TaskSpec]) -> None:
        self._node = node
        self._agent = agent
        self._spec = spec
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self, datasets: Datasets) -> None:
        """Begins."""
        self._thread = threading.Thread(target=self._run, args=(datasets,), name="keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(END_SECONDS)

    def heard(self, _heard: Heard[AnyDataset]) -> None:
        """A Dataset has changed."""
        self._wake.set()

    def _run(self, datasets: Datasets) -> None:
        while not self._stopped:
            try:
                busy = datasets.synced and self.look(datasets.all())
            except Exception:
                log.exception("looking after Datasets")
                busy = False
            self._wake.wait(SOON_SECONDS if busy else LOOK_SECONDS)
            self._wake.clear()

    def look(self, datasets: list[AnyDataset]) -> bool:
        """Brings what the node does into line with all Datasets; whether something is to be looked at again soon."""
        wanted = {_task_id(one): one for one in datasets if self._is_mine(one)}
        kept = {task_id: state for task_id, state in self._agent.states().items() if task_id.startswith(PREFIX)}
        for task_id in wanted.keys() - kept.keys():
            self._begin(task_id, wanted[task_id])
        replaced = {_uid(task_id): kept.get(task_id) for task_id in wanted}
        busy = False
        for task_id in kept.keys() - wanted.keys():
            # The one before it goes when the comparison is over: until then it holds what is here.
            if replaced.get(_uid(task_id), "ready") in ("ready", "failed"):
                self._end(task_id)
            else:
                busy = True
        for dataset in datasets:
            if dataset.metadata.deletion_timestamp is not None:
                busy = self._let_go(dataset) or busy
        return busy

    def _is_mine(self, dataset: AnyDataset) -> bool:
        decided = dataset.status.prefetch if dataset.status else None
        return (
            dataset.spec.prefetch is not None
            and dataset.metadata.deletion_timestamp is None
            and decided is not None
            and self._node in decided.nodes
            and not _is_past(dataset.spec.prefetch.until, self._agent.node.clock.now())
        )

    def _begin(self, task_id: str, dataset: AnyDataset) -> None:
        try:
            self._agent.put(self._spec(task_id, dataset))
        except DsagentError as error:
            log.warning("%s is not prefetched: %s", dataset.metadata.name, error)

    def _end(self, task_id: str) -> None:
        try:
            self._agent.delete(task_id)
        except NotCached:
            return
        except DsagentError as error:
            log.warning("task %s cannot be ended: %s", task_id, error)

    def _let_go(self, dataset: AnyDataset) -> bool:
        """Evicts what nobody uses of a deleted Dataset; whether something is left."""
        node = self._agent.node
        left = False
        for version in node.versions_of(DatasetKey(dataset.cache_namespace, dataset.metadata.name)):
            try:
                done = evict(
                    node, f"{version.dataset.namespace}/{version.dataset.name}@{version.version}", False, False
                )
                self._agent.evicted(done.evicted)
            except InUse:
                left = True
            except NotCached:
                continue
            except DsagentError as error:
                log.warning("%s stays for now: %s", version.dataset, error)
                left = True
        return left


def _task_id(dataset: AnyDataset) -> str:
    """Another one whenever it is to be compared with its source once more."""
    decided = dataset.status.prefetch if dataset.status else None
    renewed = int(decided.renewed.timestamp()) if decided and decided.renewed else 0
    return f"{PREFIX}{dataset.metadata.uid}.{renewed}"


def _uid(task_id: str) -> str:
    return task_id.removeprefix(PREFIX).partition(".")[0]


def _is_past(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment < now
