"""Events on objects of a cluster: what they say, and who writes them."""

import logging
import queue
import threading
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset
from dsagent.contract import API_VERSION
from dsagent.core.cluster import EVENTS, Cluster
from dsagent.core.errors import DsagentError

log = logging.getLogger("dsagent")

QUEUED = 1000
LONGEST = 1024  # bytes of a note that an API server takes
LONGEST_INSTANCE = 128
OF_CLUSTER = "default"  # where events of what has no namespace are kept


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


def about_dataset(dataset: Dataset | ClusterDataset) -> About:
    """A Dataset or ClusterDataset."""
    names = dataset.metadata
    return About(API_VERSION, dataset.kind, names.namespace or "", names.name, names.uid or "")


class Recorder:
    """Writes events in a thread of its own; those that come faster than they can be written are dropped. `controller`
    is who says them, such as dsagent.io/agent, and `instance` which of them.
    """

    def __init__(self, cluster: Cluster, controller: str, instance: str) -> None:
        self._cluster = cluster
        self._controller = controller
        self._instance = instance
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
            "note": said.note.encode()[:LONGEST].decode(errors="ignore"),
            "action": "Cache",
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "name": about.name,
                "uid": about.uid,
                **({"namespace": about.namespace} if about.namespace else {}),
            },
            "reportingController": self._controller,
            "reportingInstance": self._instance[:LONGEST_INSTANCE],
        }
