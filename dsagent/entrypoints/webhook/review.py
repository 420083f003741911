"""An AdmissionReview and its answer."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson

from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset
from dsagent.api.v1alpha1.references import BadReference, Claim, Reference, resolve
from dsagent.contract import ANNOTATION_MODE
from dsagent.core.cluster import CLUSTER_DATASETS, DATASETS, NAMESPACES, Cluster, Object, Scope, metadata
from dsagent.core.errors import DsagentError, NoSuchObject
from dsagent.entrypoints.webhook.injection import Pod, inject, needs_host_path
from dsagent.entrypoints.webhook.parts import Injection
from dsagent.entrypoints.webhook.wishes import Refusal, parse_wishes

T = TypeVar("T", Dataset, ClusterDataset)

ENFORCE = "pod-security.kubernetes.io/enforce"
_PATCHED = (("metadata", "labels"), ("spec", "volumes"), ("spec", "initContainers"), ("spec", "containers"))


def answer(review: Object, cluster: Cluster, injection: Injection) -> Object:
    """The AdmissionReview that answers one about a pod that is to be made. Raises KeyError, TypeError if it is none."""
    request = review["request"]
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    try:
        pod = request["object"]
        patch = _patch(pod, injected(pod, request["namespace"], cluster, injection))
        if patch:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    except Refusal as refusal:
        response |= {"allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": f"dsagent: {refusal}"}}
    except DsagentError as error:
        status = {"code": 503, "reason": "ServiceUnavailable", "message": f"dsagent: {error}"}
        response |= {"allowed": False, "status": status}
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}


def injected(pod: Pod, namespace: str, cluster: Cluster, injection: Injection) -> Pod:
    """The pod with the datasets it asks for; itself if it asks for none. Raises Refusal, and what Cluster raises."""
    wishes = parse_wishes(metadata(pod).get("annotations") or {})
    if wishes is None:
        return pod
    labels: Mapping[str, str] = metadata(cluster.get(NAMESPACES, namespace)).get("labels") or {}
    found = inject(pod, wishes, _claims(wishes.references, namespace, labels, cluster), injection)
    if volume := needs_host_path(found):
        _check_security(namespace, labels.get(ENFORCE, "privileged"), volume)
    return found


def _claims(
    references: Sequence[Reference], namespace: str, labels: Mapping[str, str], cluster: Cluster
) -> tuple[Claim, ...]:
    """What is asked for, from as few objects as that takes; all are listed only to name what is near."""
    own: dict[str, Dataset] = {}
    shared: dict[str, ClusterDataset] = {}
    for reference in references:
        try:
            own[reference.name] = Dataset.model_validate(cluster.get(DATASETS, reference.name, namespace))
        except NoSuchObject:
            try:
                found = cluster.get(CLUSTER_DATASETS, reference.name)
                shared[reference.name] = ClusterDataset.model_validate(found)
            except NoSuchObject:
                own = _by_name(cluster.listing(DATASETS, Scope(namespace)).items, Dataset)
                shared = _by_name(cluster.listing(CLUSTER_DATASETS).items, ClusterDataset)
                break
    try:
        return resolve(references, namespace, labels, own, shared)
    except BadReference as error:
        raise Refusal(str(error)) from error


def _by_name(objects: Sequence[Object], kind: type[T]) -> dict[str, T]:
    found = [kind.model_validate(one) for one in objects]
    return {one.metadata.name: one for one in found}


def _check_security(namespace: str, level: str, volume: str) -> None:
    if level != "privileged":
        raise Refusal(
            f"namespace {namespace} enforces PodSecurity {level}, which forbids the hostPath volume {volume} that the "
            f"data come through; run the pod in a namespace with {ENFORCE}: privileged, or with "
            f"{ANNOTATION_MODE}: local and a Dataset that mounts its source by nfs or persistentVolumeClaim"
        )


def _patch(before: Pod, after: Pod) -> list[Object]:
    """RFC 6902, whole lists at a time."""
    changed = [
        (top, key) for top, key in _PATCHED if (before.get(top) or {}).get(key) != (after.get(top) or {}).get(key)
    ]
    return [{"op": "add", "path": f"/{top}/{key}", "value": after[top][key]} for top, key in changed]
