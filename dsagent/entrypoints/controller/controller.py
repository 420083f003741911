"""Reads what there is, lets the rules decide, and writes what differs."""

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from dsagent.adapters.kubernetes.recorder import Said
from dsagent.adapters.kubernetes.watch import Heard, Watch
from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset, DatasetStatus
from dsagent.api.v1alpha1.meta import ObjectMeta
from dsagent.api.v1alpha1.node_dataset_cache import NodeDatasetCache
from dsagent.contract import FINALIZER
from dsagent.core.cluster import (
    CLUSTER_DATASETS,
    DATASETS,
    NODE_DATASET_CACHES,
    NODE_TOPOLOGIES,
    NODES,
    Cluster,
    Object,
    Resource,
    metadata,
)
from dsagent.core.errors import DsagentError, NoSuchObject, ObjectConflict
from dsagent.entrypoints.controller.leadership import RENEW_SECONDS, Leadership
from dsagent.entrypoints.controller.rail_numbers import NodeRails, RailNumbers, rails_of
from dsagent.entrypoints.controller.rails import Rails
from dsagent.entrypoints.controller.rules import Copy, NodeState, may_go, next_look, status_of
from dsagent.entrypoints.controller.telling import Teller, news_of, news_of_end

log = logging.getLogger("dsagent")

# What happens at once on many nodes is looked at once.
PAUSE_SECONDS = 0.5

T = TypeVar("T")
Key = tuple[str, str]


@dataclass(frozen=True)
class _Node:
    """The fields of a Node that are used; most of its changes are heartbeats, and none here."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    schedulable: bool


class Controller:
    """Looks after all Datasets, ClusterDatasets and RailDecisions of a cluster and the numbers of its rails, as long as
    it leads. `say` writes an event.
    """

    def __init__(
        self, cluster: Cluster, leadership: Leadership, rail_numbers: RailNumbers, say: Callable[[Said], None]
    ) -> None:
        self._cluster = cluster
        self._leadership = leadership
        self._rail_numbers = rail_numbers
        self._teller = Teller(say)
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._nodes: Watch[_Node] = Watch(cluster, NODES, _node, self._hear)
        self._caches: Watch[NodeDatasetCache] = Watch(
            cluster, NODE_DATASET_CACHES, NodeDatasetCache.model_validate, self._hear
        )
        self._datasets: Watch[Dataset] = Watch(cluster, DATASETS, Dataset.model_validate, self._hear)
        self._shared: Watch[ClusterDataset] = Watch(
            cluster, CLUSTER_DATASETS, ClusterDataset.model_validate, self._hear
        )
        self._rails = Rails(cluster, self._hear)
        self._topologies: Watch[NodeRails] = Watch(cluster, NODE_TOPOLOGIES, rails_of, self._hear)

    def run(self) -> None:
        """Works until `stop`."""
        watches: tuple[Watch[Any], ...] = (
            *(self._nodes, self._caches, self._datasets, self._shared),
            *self._rails.watches,
        )
        for watch in (*watches, self._topologies):
            watch.start()
        threading.Thread(target=self._lead, name="lease", daemon=True).start()
        wait = 0.0
        while not self._stopped.is_set():
            self._changed.wait(wait)
            self._stopped.wait(PAUSE_SECONDS)
            self._changed.clear()
            wait = RENEW_SECONDS
            if self._leadership.leads and all(watch.synced for watch in watches):
                try:
                    wait = self.look(datetime.now(UTC))
                    self._rails.look(datetime.now(UTC))
                except Exception:
                    log.exception("looking after what there is")
            if self._leadership.leads and self._topologies.synced:
                wait = min(wait, self._number_rails())
        for watch in (*watches, self._topologies):
            watch.stop()
        self._leadership.release()

    def stop(self) -> None:
        """Lets `run` end."""
        self._stopped.set()
        self._changed.set()

    def look(self, now: datetime) -> float:
        """Writes what differs from what should be; returns the seconds until time alone may change that."""
        caches = self._caches.objects()
        with_agent = {cache.metadata.name for cache in caches}
        nodes = {
            node.name: NodeState(node.name, node.labels, node.ready, node.schedulable, node.name in with_agent)
            for node in self._nodes.objects()
        }
        copies: dict[Key, list[Copy]] = defaultdict(list)
        for cache in caches:
            for version in cache.status.versions if cache.status else ():
                copies[version.namespace, version.name].append(Copy(cache.metadata.name, version))
        datasets: list[Dataset | ClusterDataset] = [*self._datasets.objects(), *self._shared.objects()]
        for dataset in datasets:
            if not self._leadership.leads:
                break
            found = copies[dataset.cache_namespace, dataset.metadata.name]
            try:
                self._look_after(dataset, nodes, found, now)
            except (NoSuchObject, ObjectConflict):
                pass  # it has changed meanwhile, which is heard
            except DsagentError as error:
                log.warning("%s %s: %s", dataset.kind, dataset.metadata.name, error)
        return next_look(datasets, now)

    def _look_after(
        self, dataset: Dataset | ClusterDataset, nodes: Mapping[str, NodeState], copies: list[Copy], now: datetime
    ) -> None:
        if may_go(dataset, nodes, copies, now):
            set_finalizer(self._cluster, _resource(dataset), dataset.metadata, there=False)
            self._teller.tell(dataset, news_of_end(copies, nodes), now)
            return
        if dataset.metadata.deletion_timestamp is None and FINALIZER not in (dataset.metadata.finalizers or ()):
            set_finalizer(self._cluster, _resource(dataset), dataset.metadata, there=True)
            return  # its change is heard
        status, known = status_of(dataset, nodes, copies, now), dataset.status or DatasetStatus()
        before, after = known.document(), status.document()
        if before != after:
            # A merge patch keeps what it does not name.
            self._write_status(dataset, {**dict.fromkeys(before), **after})
            self._teller.tell(dataset, news_of(known, status), now)

    def _write_status(self, dataset: Dataset | ClusterDataset, change: Object) -> None:
        names = dataset.metadata
        body = {"metadata": {"resourceVersion": names.resource_version}, "status": change}
        self._cluster.patch(_resource(dataset), names.name, body, names.namespace or "", subresource="status")

    def _number_rails(self) -> float:
        """As `look`, for the numbers of rails."""
        try:
            self._rail_numbers.look(self._topologies.objects())
        except DsagentError as error:
            log.warning("numbering rails: %s", error)
            return RENEW_SECONDS
        return math.inf

    def _lead(self) -> None:
        while not self._stopped.is_set():
            before = self._leadership.leads
            if self._leadership.renew() and not before:
                self._changed.set()
            self._stopped.wait(RENEW_SECONDS)

    def _hear(self, _heard: Heard[T]) -> None:
        self._changed.set()


def set_finalizer(cluster: Cluster, resource: Resource, names: ObjectMeta, *, there: bool) -> None:
    """Puts our finalizer on an object or takes it off; others stay. Raises what Cluster raises."""
    others = [one for one in names.finalizers or () if one != FINALIZER]
    change = {
        "metadata": {
            "resourceVersion": names.resource_version,
            "finalizers": [*others, FINALIZER] if there else others or None,
        }
    }
    cluster.patch(resource, names.name, change, names.namespace or "")


def _resource(dataset: Dataset | ClusterDataset) -> Resource:
    return DATASETS if isinstance(dataset, Dataset) else CLUSTER_DATASETS


def _node(document: Object) -> _Node:
    names, spec, status = metadata(document), document.get("spec") or {}, document.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") == "True"
    return _Node(names["name"], names.get("labels") or {}, ready, not spec.get("unschedulable", False))
