"""What the agent, the webhook and the controller need from a Kubernetes API server. Objects are JSON documents as the
API has them; who reads them makes frozen dataclasses of the fields it uses.

All methods raise ClusterUnreachable, NotPermitted and ClusterRefused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

Object = Mapping[str, Any]
"""A JSON document with `apiVersion`, `kind` and `metadata`."""

PatchKind = Literal["merge", "json", "apply"]
"""RFC 7386; RFC 6902, of which the document is a list; or server-side apply, which makes what is not there."""


class Resource(NamedTuple):
    """A kind of objects; `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As in objects: `v1`, `dsagent.io/v1alpha1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)

GROUP = "dsagent.io"
DATASETS = Resource(GROUP, "v1alpha1", "datasets", "Dataset")
CLUSTER_DATASETS = Resource(GROUP, "v1alpha1", "clusterdatasets", "ClusterDataset", namespaced=False)
NODE_DATASET_CACHES = Resource(GROUP, "v1alpha1", "nodedatasetcaches", "NodeDatasetCache", namespaced=False)
NODE_TOPOLOGIES = Resource(GROUP, "v1alpha1", "nodetopologies", "NodeTopology", namespaced=False)
RAIL_DECISIONS = Resource(GROUP, "v1alpha1", "raildecisions", "RailDecision")


class Scope(NamedTuple):
    """Which objects of a kind: of all namespaces or one, by label and field selectors as the API writes them."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYWHERE = Scope()


@dataclass(frozen=True)
class Listing:
    """All objects of a kind and scope at one moment, the one that `version` names."""

    items: Sequence[Object]
    version: str


class Change(NamedTuple):
    """What happened to an object; a bookmark's has a `metadata.resourceVersion` and nothing else."""

    kind: Literal["added", "modified", "deleted", "bookmark"]
    object: Object


class Cluster(Protocol):
    """A Kubernetes API server. Instances may be used from several threads."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """An object; raises NoSuchObject."""

    def listing(self, resource: Resource, scope: Scope = EVERYWHERE) -> Listing:
        """All objects as they are now, never older ones from a cache. Their `kind` and `apiVersion` may be missing."""

    def create(
        self, resource: Resource, body: Object, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> Object:
        """Makes an object, or asks the `subresource` of the one called `name`; raises ObjectConflict if it is there."""

    def patch(
        self,
        resource: Resource,
        name: str,
        change: Object | Sequence[Object],
        namespace: str = "",
        *,
        how: PatchKind = "merge",
        subresource: str = "",
    ) -> Object:
        """The object as it is afterwards. Raises NoSuchObject, and ObjectConflict if the change names another
        `metadata.resourceVersion` or `uid` than it has. `apply` takes over fields that others have set.
        """

    def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        """Deletes an object, or marks it if it has finalizers; raises NoSuchObject, and ObjectConflict if it has
        another uid.
        """

    def watch(
        self, resource: Resource, since: str, scope: Scope = EVERYWHERE, *, seconds: float = 300
    ) -> Iterator[Change | None]:
        """What happens after the moment `since`, for `seconds`. The first is None: the server has begun to watch.

        Raises HistoryGone, at any time.
        """


def metadata(object_: Object) -> Mapping[str, Any]:
    """An object's metadata."""
    found: Mapping[str, Any] = object_.get("metadata") or {}
    return found
