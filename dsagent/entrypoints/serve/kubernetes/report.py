"""The node's NodeDatasetCache: what the cache holds, written when it changes."""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dsagent.agent.agent import Agent
from dsagent.agent.counts import Rates as Measured
from dsagent.agent.events import Event
from dsagent.agent.tasks import TaskSpec
from dsagent.api.v1alpha1.meta import Condition, ObjectMeta, OwnerReference, set_condition
from dsagent.api.v1alpha1.node_dataset_cache import (
    MAX_VERSIONS,
    Amount,
    NodeDatasetCache,
    NodeDatasetCacheStatus,
    NodeVersion,
    Rates,
    VersionState,
)
from dsagent.core.cluster import NODE_DATASET_CACHES, NODES, Cluster, metadata
from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import DsagentError, NoSuchObject, ObjectConflict
from dsagent.core.ports import CachedVersion
from dsagent.core.quantities import human_size
from dsagent.core.tasks import DatasetInfo, State, TaskInfo
from dsagent.service.leases import leases_by_version
from dsagent.service.listing import df
from dsagent.service.node import Node
from dsagent.service.results import DiskInfo

log = logging.getLogger("dsagent")

LOOK_SECONDS = 1.0
ANEW_SECONDS = 30.0  # what no file tells of, such as other programs' use of the disk
PAUSE_SECONDS = 1.0  # between two writes
END_SECONDS = 5.0
SLIGHT = 0.01  # of the capacity: so much may the free space differ from what was written

_STATES: Mapping[State, VersionState] = {
    "pending": "Pending",
    "running": "Caching",
    "ready": "Ready",
    "failed": "Failed",
}


class Checks:
    """When the newest version of each dataset was last found to be what its source has."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._found: dict[DatasetKey, tuple[str, datetime]] = {}

    def heard(self, key: DatasetKey, version: str) -> None:
        """It was, just now."""
        with self._lock:
            self._found[key] = (version, self._node.clock.now())

    def of(self, version: CachedVersion) -> datetime:
        """Of one version: at its publish or since."""
        with self._lock:
            seen, when = self._found.get(version.dataset, ("", version.published))
        return max(when, version.published) if seen == version.version else version.published

    def newest(self, key: DatasetKey) -> datetime | None:
        """Of what is here of a dataset, or None if nothing is."""
        versions = self._node.versions_of(key)
        return self.of(versions[0]) if versions else None


class Report:
    """Writes the NodeDatasetCache called `name` in a thread of its own."""

    def __init__(self, cluster: Cluster, name: str, agent: Agent, checks: Checks) -> None:
        self._cluster = cluster
        self._name = name
        self._agent = agent
        self._checks = checks
        self._dirty = threading.Event()
        self._stopped = threading.Event()
        self._written: NodeDatasetCacheStatus | None = None
        self._conditions: Sequence[Condition] = ()
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it, after saying that the agent is not ready any more."""
        self._stopped.set()
        self._dirty.set()
        self._thread.join(END_SECONDS)
        try:
            self._write(self._status(ready=False))
        except DsagentError as error:
            log.warning("the node's NodeDatasetCache stays as it was: %s", error)

    def heard(self, event: Event) -> None:
        """Something has happened in the agent."""
        if event.kind in ("task", "deleted", "evicted"):
            self._dirty.set()

    def _run(self) -> None:
        seen: tuple[int, ...] = ()
        due = 0.0
        while not self._stopped.is_set():
            dirty = self._dirty.wait(LOOK_SECONDS)
            self._dirty.clear()
            now = _signs(self._agent.node)
            under_way = self._agent.running() > 0
            if not dirty and not under_way and now == seen and time.monotonic() < due:
                continue
            seen, due = now, time.monotonic() + ANEW_SECONDS
            try:
                status = self._status(ready=True)
                if self._written is None or _differs(status, self._written):
                    self._write(status)
                    self._stopped.wait(PAUSE_SECONDS)
            except DsagentError as error:
                log.warning("writing the node's NodeDatasetCache: %s", error)
                due = 0.0
                self._stopped.wait(PAUSE_SECONDS)
            except Exception:
                log.exception("writing the node's NodeDatasetCache")
                self._stopped.wait(ANEW_SECONDS)

    def _status(self, *, ready: bool) -> NodeDatasetCacheStatus:
        agent = self._agent
        under_way = agent.tasks("pending", "running", "failed")
        tasks = [(task, spec) for task in under_way if (spec := agent.spec(task.id)) is not None]
        status = node_status(agent.node, tasks, agent.counts.rates, self._checks)
        now = agent.node.clock.now()
        said = [
            Condition(
                type="Ready",
                status="True" if ready else "False",
                last_transition_time=now,
                reason="Serving" if ready else "Ending",
                message="the agent serves" if ready else "the agent was told to end",
            ),
            Condition(
                type="Schedulable",
                status="True" if status.capacity.bytes else "False",
                last_transition_time=now,
                reason="RoomOnDisk" if status.capacity.bytes else "NoRoomOnDisk",
                message=f"the cache may take {status.shown_capacity} in all",
            ),
        ]
        for condition in said:
            self._conditions = set_condition(self._conditions, condition)
        return status.model_copy(update={"conditions": self._conditions})

    def _write(self, status: NodeDatasetCacheStatus) -> None:
        if self._written is None:
            self._make()
        document = {"status": status.document()}
        try:
            self._cluster.patch(NODE_DATASET_CACHES, self._name, document, subresource="status")
        except NoSuchObject:
            self._make()
            self._cluster.patch(NODE_DATASET_CACHES, self._name, document, subresource="status")
        self._written = status

    def _make(self) -> None:
        """Makes the object, owned by its Node: it goes with it."""
        uid = metadata(self._cluster.get(NODES, self._name))["uid"]
        owner = OwnerReference(api_version=NODES.api_version, kind=NODES.kind, name=self._name, uid=uid)
        made = NodeDatasetCache(metadata=ObjectMeta(name=self._name, owner_references=[owner]))
        try:
            self._cluster.create(NODE_DATASET_CACHES, made.document())
        except ObjectConflict:
            self._cluster.patch(NODE_DATASET_CACHES, self._name, {"metadata": {"ownerReferences": [owner.document()]}})


def node_status(
    node: Node, tasks: Sequence[tuple[TaskInfo, TaskSpec]], measured: Measured, checks: Checks
) -> NodeDatasetCacheStatus:
    """What the node's cache holds, without conditions."""
    room = df(node)
    leases = leases_by_version(node)
    versions = [_whole(version, len(leases.get(version.id, ())), checks) for version in node.shown()]
    versions += _on_their_way(tasks)
    versions.sort(key=lambda one: (one.namespace, one.name, one.version))
    return NodeDatasetCacheStatus(
        capacity=Amount(bytes=room.capacity, inodes=_all_inodes(room)),
        free=Amount(bytes=room.free, inodes=room.inodes_free),
        reserved=Amount(bytes=room.reserved, inodes=room.inodes_reserved),
        rates=Rates(**measured._asdict()),
        shown_capacity=human_size(room.capacity),
        shown_free=human_size(room.free),
        dataset_count=sum(one.state == "Ready" for one in versions),
        versions=versions[:MAX_VERSIONS],
    )


def _all_inodes(room: DiskInfo) -> int:
    return room.inodes_used + room.inodes_reserved + room.inodes_free if room.inodes_total else 0


def _whole(version: CachedVersion, leases: int, checks: Checks) -> NodeVersion:
    return NodeVersion(
        namespace=version.dataset.namespace,
        name=version.dataset.name,
        version=version.version,
        state="Ready",
        files=version.files,
        bytes=version.bytes,
        bytes_present=version.bytes,
        allocated=Amount(bytes=version.allocated.bytes, inodes=version.allocated.inodes),
        leases=leases,
        in_use=leases > 0,
        checked=checks.of(version),
    )


def _on_their_way(tasks: Sequence[tuple[TaskInfo, TaskSpec]]) -> list[NodeVersion]:
    """What tasks wait for, each once, however many do; where one has failed and another is at it, it is at it."""
    order = ("running", "pending", "failed")
    found: dict[tuple[str, str, str], DatasetInfo] = {}
    for task, spec in tasks:
        for info, wanted in zip(task.datasets, spec.wanted, strict=True):
            key = (wanted.request.namespace, info.name, info.version or "")
            rank = order.index(info.state) if info.state in order and info.name else len(order)
            if rank < (order.index(found[key].state) if key in found else len(order)):
                found[key] = info
    return [
        NodeVersion(
            namespace=namespace,
            name=name,
            version=version,
            state=_STATES[info.state],
            files=info.files_total,
            bytes=info.bytes_total,
            bytes_present=min(info.bytes_done, info.bytes_total),
            message=info.error.detail[:1024] if info.error else None,
        )
        for (namespace, name, version), info in found.items()
    ]


def _differs(new: NodeDatasetCacheStatus, old: NodeDatasetCacheStatus) -> bool:
    """Whether it is worth a write: anything but a slight change of what is free."""
    slight = max(new.capacity.bytes, old.capacity.bytes) * SLIGHT
    amounts = ((new.free, old.free), (new.capacity, old.capacity))
    if any(abs(one.bytes - other.bytes) > slight for one, other in amounts):
        return True
    return bool(_without_amounts(new) != _without_amounts(old))


def _without_amounts(status: NodeDatasetCacheStatus) -> Any:
    left = {"free", "capacity", "shown_free", "shown_capacity"}
    return status.model_dump(exclude={**dict.fromkeys(left, True), "versions": {"__all__": {"checked"}}})


def _signs(node: Node) -> tuple[int, ...]:
    """What changes on the disk when versions or leases do."""
    return tuple(_changed(path) for path in (node.locks, node.pods, node.root / "catalog.sqlite"))


def _changed(path: "os.PathLike[str]") -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
