"""What a request means in a cluster: the Dataset behind a name, who may use it, and its credentials."""

import base64
import binascii
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import SecretStr

from dsagent.adapters.agent_places import AWS_KEYS
from dsagent.adapters.kubernetes.watch import Heard, Watch
from dsagent.api.v1 import DatasetRequest, Options
from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset
from dsagent.api.v1alpha1.references import is_allowed
from dsagent.contract import CLUSTER_NAMESPACE
from dsagent.core.cluster import CLUSTER_DATASETS, DATASETS, NAMESPACES, SECRETS, Cluster, Object, Resource, metadata
from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import NoSuchObject, NotPermitted, UsageError
from dsagent.core.quantities import parse_duration

AnyDataset = Dataset | ClusterDataset

FRESH_SECONDS = 30.0


class Meaning(NamedTuple):
    """A request as the cluster means it: from where, with whose credentials, and as whose copy it is kept. `trusted`:
    an administrator said where it comes from.
    """

    request: DatasetRequest
    namespace: str
    trusted: bool = False


class Datasets:
    """The cluster's Datasets, kept up to date. `heard` is told of each change in them; `checked` says when a version of
    a dataset here was last compared with its source.
    """

    def __init__(
        self,
        cluster: Cluster,
        heard: Callable[[Heard[AnyDataset]], None],
        checked: Callable[[DatasetKey], datetime | None],
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._checked = checked
        self._now = now
        self._own: Watch[AnyDataset] = Watch(cluster, DATASETS, Dataset.model_validate, heard)
        self._shared: Watch[AnyDataset] = Watch(cluster, CLUSTER_DATASETS, ClusterDataset.model_validate, heard)
        self._lock = threading.Lock()
        self._recent: dict[tuple[Resource, str, str], tuple[float, Object]] = {}

    def start(self) -> None:
        """Begins."""
        self._own.start()
        self._shared.start()

    def stop(self) -> None:
        """Ends."""
        self._own.stop()
        self._shared.stop()

    @property
    def synced(self) -> bool:
        """Whether all are known."""
        return self._own.synced and self._shared.synced

    def all(self) -> list[AnyDataset]:
        """All that there are."""
        return [*self._own.objects(), *self._shared.objects()]

    def find(self, key: DatasetKey) -> AnyDataset | None:
        """The object whose copies have this key, if there is one."""
        return self._own.find(key.name, key.namespace) or (
            self._shared.find(key.name) if key.namespace == CLUSTER_NAMESPACE else None
        )

    def meaning(self, request: DatasetRequest, namespace: str) -> Meaning:
        """What a pod of a namespace asks for. Raises NotPermitted for a ClusterDataset that it may not use, and for a
        Secret that the agent may not read and the pod did not send.
        """
        if request.cluster:
            shared = self._allowed(request.name or "", namespace)
            return self.meaning_of(shared, request.version)
        own = self._own.find(request.name or "", namespace) or self._asked(request.name or "", namespace)
        if own is None or own.spec.source != request.source:
            return Meaning(request, namespace)
        if not request.credentials:
            request = request.model_copy(update={"credentials": self._credentials(own)})
        return Meaning(self._unless_checked(own, request), namespace)

    def meaning_of(self, dataset: AnyDataset, version: str | None = None) -> Meaning:
        """What an object itself says. Raises NotPermitted if the agent may not read its Secret."""
        spec = dataset.spec
        given = spec.options
        options = Options(
            check=spec.check,
            replace_source=given.replace_source if given else False,
            skip_special=given.skip_special if given else False,
            pack_to=spec.pack_to,
            storage=dict(given.storage) if given else {},
        )
        request = DatasetRequest(
            name=dataset.metadata.name,
            source=spec.source,
            version=version,
            options=options,
            credentials=self._credentials(dataset),
            cluster=isinstance(dataset, ClusterDataset),
        )
        return Meaning(self._unless_checked(dataset, request), dataset.cache_namespace, request.cluster)

    def _unless_checked(self, dataset: AnyDataset, request: DatasetRequest) -> DatasetRequest:
        """spec.maxAge: what was compared lately is not compared again."""
        if dataset.spec.max_age is None:
            return request
        checked = self._checked(DatasetKey(dataset.cache_namespace, dataset.metadata.name))
        age = timedelta(seconds=parse_duration(dataset.spec.max_age))
        if checked is None or self._now() - checked > age:
            return request
        return request.model_copy(update={"options": request.options.model_copy(update={"check": "never"})})

    def _asked(self, name: str, namespace: str) -> AnyDataset | None:
        """One that was made a moment ago, before its pod."""
        try:
            return Dataset.model_validate(self._cluster.get(DATASETS, name, namespace)) if name else None
        except (NoSuchObject, ValueError):
            return None

    def _allowed(self, name: str, namespace: str) -> AnyDataset:
        shared = self._shared.find(name)
        if shared is None:
            try:
                shared = ClusterDataset.model_validate(self._cluster.get(CLUSTER_DATASETS, name))
            except (NoSuchObject, ValueError):
                raise UsageError("use", f"the ClusterDataset {name}", "there is none", "kubectl get cdset") from None
        if namespace == CLUSTER_NAMESPACE:  # an administrator asks
            return shared
        labels: Mapping[str, str] = metadata(self._fresh(NAMESPACES, namespace)).get("labels") or {}
        if not isinstance(shared, ClusterDataset) or not is_allowed(shared, labels):
            raise NotPermitted(
                "use",
                f"the ClusterDataset {name}",
                f"its spec.allowedNamespaces does not match the labels of namespace {namespace}",
                "ask an administrator",
            )
        return shared

    def _credentials(self, dataset: AnyDataset) -> dict[str, SecretStr]:
        """Of the object's Secret, as sources take them."""
        secret = dataset.spec.secret_ref
        if secret is None:
            return {}
        namespace = getattr(secret, "namespace", None) or dataset.metadata.namespace or ""
        subject = f"the Secret {namespace}/{secret.name} of {dataset.kind} {dataset.metadata.name}"
        try:
            data: Mapping[str, str] = self._fresh(SECRETS, secret.name, namespace).get("data") or {}
        except NoSuchObject:
            raise NotPermitted("read", subject, "there is none", "make it, or correct spec.secretRef") from None
        except NotPermitted:
            hint = "add it to the chart's secretNamespaces; else the pod brings its credentials itself"
            raise NotPermitted("read", subject, "this agent may not", hint) from None
        try:
            found = {
                name: base64.b64decode(data[variable]).decode()
                for variable, name in AWS_KEYS.items()
                if variable in data
            }
        except (binascii.Error, UnicodeDecodeError):
            raise NotPermitted("read", subject, "its values are no text", "write them anew") from None
        return {name: SecretStr(value) for name, value in found.items()}

    def _fresh(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """An object as it was a moment ago: many pods of one job ask at once."""
        key = (resource, namespace, name)
        with self._lock:
            for other, (since, _) in list(self._recent.items()):
                if time.monotonic() - since > FRESH_SECONDS:
                    del self._recent[other]
            if key in self._recent:
                return self._recent[key][1]
        found = self._cluster.get(resource, name, namespace)
        with self._lock:
            self._recent[key] = (time.monotonic(), found)
        return found
