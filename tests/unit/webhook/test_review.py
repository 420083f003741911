"""AdmissionReviews and their answers."""

import base64
import json
from typing import Any

import pytest

from dsagent.core.cluster import CLUSTER_DATASETS, DATASETS, NAMESPACES, Resource
from dsagent.entrypoints.webhook.parts import Injection
from dsagent.entrypoints.webhook.review import answer
from tests.fakes.cluster import MemoryCluster

PODS = Resource("", "v1", "pods", "Pod")
INJECTION = Injection("/var/lib/dsagent", "init:1", "IfNotPresent", "2h")


def cluster(level: str | None = None) -> MemoryCluster:
    found = MemoryCluster()
    labels = {"team": "vision"} | ({"pod-security.kubernetes.io/enforce": level} if level else {})
    found.create(NAMESPACES, {"metadata": {"name": "research", "labels": labels}})
    for name, spec in {
        "coco": {"source": "s3://bucket/coco", "mount": {"nfs": {"server": "nfs", "path": "/coco"}}},
        "imagenet": {"source": "/mnt/imagenet", "mount": {"hostPath": {"path": "/mnt/imagenet"}}},
    }.items():
        found.create(DATASETS, {"metadata": {"name": name}, "spec": spec}, "research")
    for name, allowed in {"shared": {"matchLabels": {"team": "vision"}}, "closed": None}.items():
        spec = {"source": f"/mnt/{name}"} | ({"allowedNamespaces": allowed} if allowed else {})
        found.create(CLUSTER_DATASETS, {"metadata": {"name": name}, "spec": spec})
    return found


def asked(found: MemoryCluster, **annotations: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The response, and the pod as the API server would make it."""
    said = {f"dsagent.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    pod: dict[str, Any] = {
        "metadata": {"generateName": "train-", "annotations": said},
        "spec": {"containers": [{"name": "train", "image": "train:1"}]},
    }
    request = {"uid": "1", "namespace": "research", "object": pod}
    reply = answer({"apiVersion": "admission.k8s.io/v1", "request": request}, found, INJECTION)
    response = dict(reply["response"])
    assert (reply["apiVersion"], reply["kind"], response["uid"]) == ("admission.k8s.io/v1", "AdmissionReview", "1")
    steps = json.loads(base64.b64decode(response.get("patch", b"W10=")))
    found.create(PODS, {**pod, "metadata": {**pod["metadata"], "name": "train"}}, "research")
    return response, dict(found.patch(PODS, "train", steps, "research", how="json"))


def test_a_patch_makes_the_pod_that_has_its_datasets() -> None:
    response, pod = asked(cluster(), datasets="coco, shared")
    assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["dsagent-pull-0", "dsagent-wait"]
    assert pod["metadata"]["labels"] == {"dsagent.io/injected": "true"}
    environ = {one["name"]: one.get("value") for one in pod["spec"]["initContainers"][1]["env"]}
    wanted = json.loads(environ["DSAGENT_DATASETS"])
    assert [(one["name"], one["source"], one.get("cluster")) for one in wanted] == [
        ("coco", "s3://bucket/coco", None),
        ("shared", "/mnt/shared", True),
    ]


def test_a_pod_that_asks_for_nothing_is_left_alone() -> None:
    response, _ = asked(cluster())
    assert response == {"uid": "1", "allowed": True}


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"datasets": "cocoo"}, "no Dataset cocoo in namespace research, .*did you mean coco?"),
        ({"datasets": "coco, shred"}, "did you mean shared"),
        ({"datasets": "closed"}, "ClusterDataset closed is not allowed to namespace research"),
        ({"dataset": "coco"}, "did you mean dsagent.io/datasets"),
        ({"datasets": "shared", "mode": "local"}, "ClusterDataset shared does not say how"),
    ],
)
def test_refusals_say_why_and_what_to_do(annotations: dict[str, str], said: str) -> None:
    response, pod = asked(cluster(), **annotations)
    assert not response["allowed"]
    assert response["status"]["code"] == 403
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(response["status"]["message"])
    assert "initContainers" not in pod["spec"]


@pytest.mark.parametrize(
    ("level", "annotations", "allowed"),
    [
        (None, {"datasets": "coco"}, True),
        ("privileged", {"datasets": "coco"}, True),
        ("baseline", {"datasets": "coco"}, False),
        ("restricted", {"datasets": "coco"}, False),
        ("baseline", {"datasets": "coco", "mode": "local"}, True),
        ("baseline", {"datasets": "imagenet", "mode": "local"}, False),
        ("baseline", {"datasets": "coco", "on_failure": "source"}, False),
    ],
)
def test_namespaces_that_forbid_host_paths(level: str | None, annotations: dict[str, str], *, allowed: bool) -> None:
    response, _ = asked(cluster(level), **annotations)
    assert response["allowed"] == allowed
    if not allowed:
        assert f"namespace research enforces PodSecurity {level}" in response["status"]["message"]
        assert "pod-security.kubernetes.io/enforce: privileged" in response["status"]["message"]


def test_an_api_server_that_is_away_is_no_reason_to_let_a_pod_through() -> None:
    found = cluster()
    found.set_down(True)
    request = {
        "uid": "1",
        "namespace": "research",
        "object": {"metadata": {"annotations": {"dsagent.io/datasets": "coco"}}},
    }
    response = answer({"apiVersion": "admission.k8s.io/v1", "request": request}, found, INJECTION)["response"]
    assert (response["allowed"], response["status"]["code"]) == (False, 503)
