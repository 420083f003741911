"""Kubernetes Events of what happens to datasets, on the pods that asked and on the Datasets."""

import threading
from collections.abc import Callable

from dsagent.adapters.kubernetes.recorder import About, Said, about_dataset
from dsagent.agent.events import Event
from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset
from dsagent.contract import (
    EVENT_CACHE_EVICTED,
    EVENT_CACHE_FAILED,
    EVENT_CACHE_PULLING,
    EVENT_CACHE_READY,
    EVENT_DIGEST_MISMATCH,
    EVENT_INSUFFICIENT_STORAGE,
    EVENT_SOURCE_CHANGED,
)
from dsagent.core.bound_pods import BoundPod
from dsagent.core.datasets import DatasetKey, split_reference
from dsagent.core.errors import DigestMismatch, InsufficientStorage, SourceChanged
from dsagent.core.eviction import Evicted
from dsagent.core.quantities import human_count, human_size
from dsagent.core.tasks import DatasetInfo, Owner, TaskInfo

CONTROLLER = "dsagent.io/agent"

_REASONS = {
    InsufficientStorage.problem_type(): EVENT_INSUFFICIENT_STORAGE,
    DigestMismatch.problem_type(): EVENT_DIGEST_MISMATCH,
    SourceChanged.problem_type(): EVENT_SOURCE_CHANGED,
}


def about_pod(pod: BoundPod | Owner) -> About:
    """A pod."""
    return About("v1", "Pod", pod.namespace, pod.name, pod.uid)


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
