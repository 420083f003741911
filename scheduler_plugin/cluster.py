"""The view from a cluster, by watches; the one module here that knows dsagent's client of the Kubernetes API."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dsagent.adapters.kubernetes.client import ApiCluster
from dsagent.adapters.kubernetes.config import api_server
from dsagent.adapters.kubernetes.watch import Heard, Watch
from dsagent.api.v1alpha1.rail_decision import RailDecision
from dsagent.contract import LABEL_RAIL_DECISION
from dsagent.core.cluster import (
    CLUSTER_DATASETS,
    DATASETS,
    NODE_DATASET_CACHES,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    RAIL_DECISIONS,
    Cluster,
    Resource,
    Scope,
)
from dsagent.core.errors import DsagentError, NoSuchObject, ObjectConflict
from scheduler_plugin.errors import NoCluster
from scheduler_plugin.objects import Known, understand
from scheduler_plugin.rail.job import MADE_BY_OTHERS, Owner
from scheduler_plugin.view import ObjectKind, View

MANAGER = "dsagent-scheduler"
RESOURCES: Mapping[ObjectKind, Resource] = {
    "Dataset": DATASETS,
    "ClusterDataset": CLUSTER_DATASETS,
    "NodeDatasetCache": NODE_DATASET_CACHES,
    "NodeTopology": NODE_TOPOLOGIES,
    "Node": NODES,
    "Pod": PODS,
}


def connect() -> ApiCluster:
    """The cluster of this pod or of the kubeconfig; raises NoCluster."""
    try:
        return ApiCluster(api_server(os.environ), MANAGER)
    except DsagentError as error:
        raise NoCluster("ask", "the Kubernetes API", str(error)) from error


class Feed:
    """Changes on their way from the watches' threads to the thread that owns the view, which `wake` tells of them."""

    def __init__(self, cluster: ApiCluster, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changes: deque[tuple[ObjectKind, Heard[Known]]] = deque()
        self._unsynced = dict.fromkeys(RESOURCES)
        self._watches = [
            Watch(cluster, resource, partial(understand, kind), partial(self._heard, kind))
            for kind, resource in RESOURCES.items()
        ]

    def start(self) -> None:
        """Begins to watch."""
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """Ends it."""
        for watch in self._watches:
            watch.stop()

    def unsynced(self) -> list[str]:
        """The kinds that the view does not have whole yet."""
        return list(self._unsynced)

    def apply(self, view: View, most: int) -> bool:
        """Brings at most so many changes into the view; whether there are more."""
        for _ in range(most):
            if not self._changes:
                return False
            kind, heard = self._changes.popleft()
            if heard.object is None:
                self._unsynced.pop(kind, None)
            elif heard.kind == "deleted":
                view.drop(kind, heard.object.key)
            else:
                view.put(*heard.object)
        return bool(self._changes)

    def _heard(self, kind: ObjectKind, heard: Heard[Known]) -> None:
        self._changes.append((kind, heard))
        self._wake()


class ClusterDecisions:
    """See scheduler_plugin.rail.admission.Decisions and scheduler_plugin.rail.anew.Replacing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(self, namespace: str, name: str) -> RailDecision | None:
        """See Decisions.find."""
        with _asking(f"RailDecision {namespace}/{name}"):
            try:
                return RailDecision.model_validate(self._cluster.get(RAIL_DECISIONS, name, namespace))
            except NoSuchObject:
                return None

    def make(self, decision: RailDecision) -> RailDecision:
        """See Decisions.make."""
        namespace, name = decision.metadata.namespace or "", decision.metadata.name
        with _asking(f"RailDecision {namespace}/{name}"):
            try:
                made = self._cluster.create(RAIL_DECISIONS, decision.document(), namespace)
            except ObjectConflict:  # another pod of the job was faster
                made = self._cluster.get(RAIL_DECISIONS, name, namespace)
            return RailDecision.model_validate(made)

    def read_owner(self, namespace: str, owner: Owner) -> Mapping[str, Any] | None:
        """See Decisions.read_owner."""
        group, _, version = owner.api_version.rpartition("/")
        plural = MADE_BY_OTHERS[owner.api_version, owner.kind]
        with _asking(f"{owner.kind} {namespace}/{owner.name}"):
            try:
                return self._cluster.get(Resource(group, version, plural, owner.kind), owner.name, namespace)
            except NoSuchObject:
                return None

    def all(self) -> Sequence[RailDecision]:
        """See Replacing.all."""
        with _asking("all RailDecisions"):
            return [RailDecision.model_validate(one) for one in self._cluster.listing(RAIL_DECISIONS).items]

    def pods(self, decision: RailDecision) -> Sequence[Mapping[str, Any]]:
        """See Replacing.pods."""
        names = decision.metadata
        with _asking(f"the pods of RailDecision {names.namespace}/{names.name}"):
            scope = Scope(names.namespace or "", f"{LABEL_RAIL_DECISION}={names.name}")
            return self._cluster.listing(PODS, scope).items

    def remove(self, decision: RailDecision) -> bool:
        """See Replacing.remove."""
        names = decision.metadata
        with _asking(f"RailDecision {names.namespace}/{names.name}"):
            try:
                self._cluster.delete(RAIL_DECISIONS, names.name, names.namespace or "", uid=names.uid or "")
            except (NoSuchObject, ObjectConflict):
                return False
            return True

    def evict(self, pod: Mapping[str, Any]) -> None:
        """See Replacing.evict."""
        names = pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": names["name"], "namespace": names["namespace"]},
            "deleteOptions": {"preconditions": {"uid": names["uid"]}},
        }
        with _asking(f"pod {names['namespace']}/{names['name']}"), suppress(NoSuchObject, ObjectConflict):
            self._cluster.create(PODS, body, names["namespace"], name=names["name"], subresource="eviction")


@contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except DsagentError as error:
        raise NoCluster("ask the Kubernetes API for", what, str(error)) from error


def snapshot(cluster: ApiCluster) -> list[Mapping[str, Any]]:
    """All objects that the view is made of, with the fields that it reads and no others: a pod's environment may have
    secrets in it. Raises NoCluster.
    """
    try:
        return [
            {"apiVersion": resource.api_version, "kind": resource.kind, **_kept(resource.kind, item)}
            for resource in (*RESOURCES.values(), RAIL_DECISIONS)
            for item in cluster.listing(resource).items
        ]
    except DsagentError as error:
        raise NoCluster("list", "what the scheduler plugin knows", str(error)) from error


def _kept(kind: str, item: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = item["metadata"]
    names = {name: metadata[name] for name in ("namespace", "name", "uid") if name in metadata}
    if kind == "Pod":
        ours = {
            name: text for name, text in (metadata.get("annotations") or {}).items() if name.startswith("dsagent.io/")
        }
        spec = item["spec"]
        fields = ("name", "resources", "restartPolicy")
        containers = {
            which: [{name: one[name] for name in fields if name in one} for one in spec.get(which) or ()]
            for which in ("initContainers", "containers")
        }
        bound = {"nodeName": spec["nodeName"]} if spec.get("nodeName") else {}
        phase = {"phase": (item.get("status") or {}).get("phase")}
        return {"metadata": {**names, "annotations": ours}, "spec": {**bound, **containers}, "status": phase}
    if kind == "Node":
        return {"metadata": names}
    parts = ("spec",) if kind == "RailDecision" else ("status",)
    return {"metadata": names, **{part: item[part] for part in parts if part in item}}
