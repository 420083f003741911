"""Kubernetes Events of what happens to datasets, on the pods that asked and on the Datasets."""

import logging
import queue
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from dsagent.agent.events import Event
from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset
from dsagent.contract import (
    API_VERSION,
    EVENT_CACHE_EVICTED,
    EVENT_CACHE_FAILED,
    EVENT_CACHE_PULLING,
    EVENT_CACHE_READY,
    EVENT_DIGEST_MISMATCH,
    EVENT_INSUFFICIENT_STORAGE,
    EVENT_SOURCE_CHANGED,
)
from dsagent.core.bound_pods import BoundPod
from dsagent.core.cluster import EVENTS, Cluster
from dsagent.core.datasets import DatasetKey, split_reference
from dsagent.core.errors import DigestMismatch, DsagentError, InsufficientStorage, SourceChanged
from dsagent.core.eviction import Evicted
from dsagent.core.quantities import human_count, human_size
from dsagent.core.tasks import DatasetInfo, Owner, TaskInfo

log = logging.getLogger("dsagent")

QUEUED = 1000
LONGEST = 1024
CONTROLLER = "dsagent.io/agent"
OF_CLUSTER = "default"  # where events of what has no namespace are kept

_REASONS = {
    InsufficientStorage.problem_type(): EVENT_INSUFFICIENT_STORAGE,
    DigestMismatch.problem_type(): EVENT_DIGEST_MISMATCH,
    SourceChanged.problem_type(): EVENT_SOURCE_CHANGED,
}


class About(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Said(NamedTuple):
    """One event to be written."""

    about: About
    reason: str
    note: str
    warning: bool = False


def about_pod(pod: BoundPod | Owner) -> About:
    """A pod."""
    return About("v1", "Pod", pod.namespace, pod.name, pod.uid)


def about_dataset(dataset: Dataset | ClusterDataset) -> About:
    """A Dataset or ClusterDataset."""
    names = dataset.metadata
    return About(API_VERSION, dataset.kind, names.namespace or "", names.name, names.uid or "")


class Recorder:
    """Writes events in a thread of its own; those that come faster than they can be written are dropped."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self._queue: queue.Queue[Said | None] = queue.Queue(QUEUED)

    def start(self) -> None:
        """Begins."""
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def stop(self) -> None:
        """Ends when all that was said is written."""
        self._queue.put(None)

    def say(self, said: Said) -> None:
        """Lets it be written."""
        try:
            self._queue.put_nowait(said)
        except queue.Full:
            log.warning("an event is dropped: %s of %s", said.reason, said.about.name)

    def _run(self) -> None:
        while (said := self._queue.get()) is not None:
            try:
                self._cluster.create(EVENTS, self._document(said), said.about.namespace or OF_CLUSTER)
            except DsagentError as error:
                log.warning("an event cannot be written: %s", error)

    def _document(self, said: Said) -> dict[str, object]:
        about = said.about
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": f"{about.name}.{uuid.uuid4().hex[:16]}",
                "namespace": about.namespace or OF_CLUSTER,
            },
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if said.warning else "Normal",
            "reason": said.reason,
            "note": said.note[:LONGEST],
            "action": "Cache",
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "name": about.name,
                "uid": about.uid,
                **({"namespace": about.namespace} if about.namespace else {}),
            },
            "reportingController": CONTROLLER,
            "reportingInstance": self._node,
        }


class Reporter:
    """Turns what happens in the agent into events, each said once. Called in the thread to which it happens."""

    def __init__(
        self, say: Callable[[Said], None], find: Callable[[DatasetKey], Dataset | ClusterDataset | None], node: str
    ) -> None:
        self._say = say
        self._find = find
        self._node = node
        self._lock = threading.Lock()
        self._told: dict[str, set[tuple[str, str]]] = {}

    def heard(self, event: Event) -> None:
        """See EventLog.listen."""
        if isinstance(event.document, TaskInfo) and event.owner is not None:
            for info in event.document.datasets:
                self._dataset(event.task, event.owner, info)
        elif event.kind == "deleted":
            with self._lock:
                self._told.pop(event.task, None)
        elif isinstance(event.document, Evicted):
            gone = event.document
            note = f"{gone.dataset}@{gone.version} was evicted from {self._node}: {human_size(gone.bytes)}"
            self._of_dataset(split_reference(gone.dataset)[0], EVENT_CACHE_EVICTED, note)

    def _dataset(self, task: str, owner: Owner, info: DatasetInfo) -> None:
        found = _of(info)
        if found is None:
            return
        reason, note, warning = found
        with self._lock:
            told = self._told.setdefault(task, set())
            if (info.name, reason) in told:
                return
            told.add((info.name, reason))
        if owner.uid:
            self._say(Said(about_pod(owner), reason, note, warning))
        if warning or info.outcome in ("fetched", "updated"):
            key = DatasetKey(owner.namespace, info.name)
            self._of_dataset(key, reason, f"{note} (on {self._node})", warning=warning)

    def _of_dataset(self, key: DatasetKey, reason: str, note: str, *, warning: bool = False) -> None:
        dataset = self._find(key)
        if dataset is not None:
            self._say(Said(about_dataset(dataset), reason, note, warning))


def _of(info: DatasetInfo) -> tuple[str, str, bool] | None:
    """The reason, the note and whether it is a warning; None if there is nothing to say."""
    if info.error is not None:
        reason = _REASONS.get(info.error.type, EVENT_CACHE_FAILED if info.state == "failed" else None)
        return (reason, info.error.detail, True) if reason else None
    if info.state == "running":
        files = f"{human_count(info.files_total)} files, {human_size(info.bytes_total)}" if info.files_total else ""
        return EVENT_CACHE_PULLING, f"{info.name} is on its way: {files}".rstrip(": "), False
    if info.state == "ready":
        how = f"{human_count(info.files)} files, {human_size(info.bytes)}"
        return EVENT_CACHE_READY, f"{info.name}@{info.version} is here ({info.outcome}): {how}", False
    return None
