"""The chart: what it renders, what its parts may do, and its life from an earlier version to nothing."""

import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dsagent.adapters.kubernetes.client import ApiCluster
from dsagent.adapters.kubernetes.config import api_server
from dsagent.core.cluster import NODE_DATASET_CACHES
from dsagent.core.errors import NotPermitted
from tests.e2e.kube import TINY, Namespace, phase
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import dataset, make_files
from tests.support.foreign import foreign_definitions
from tools.cluster.chart import CHART, NAMESPACE, install_chart, run_helm
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import IMAGE_TAG, Cluster, ClusterError
from tools.cluster.rooms import wait_until

EARLIER = Path(__file__).parent / "charts" / "dsagent-0.0.9.tgz"
AGENT = f"system:serviceaccount:{NAMESPACE}:dsagent-agent"
_STATUS = {part: {"bytes": 1} for part in ("capacity", "free", "reserved")}
WITH_ALL = (
    *("--set", "secretNamespaces.default={s3-keys}", "--set", "agent.sources={/mnt/nfs}"),
    *(
        "--set",
        "agent.tokensSecret=tokens",
        "--set",
        "image.registry=registry.example/",
        "--set",
        "image.pullSecrets={key}",
    ),
    *("--set", "topology.enabled=true", "--set", "topology.kubeletConfig=/var/lib/kubelet/config.yaml"),
    *("--set", "scheduler.create=true,scheduler.tlsSecret=t,scheduler.caBundle=x,scheduler.kubeScheduler.create=true"),
)


def rendered(cluster: Cluster, *options: str) -> str:
    return run_helm(cluster, "template", "dsagent", str(CHART), "--kube-version=1.34.3", *options)


def check(cluster: Cluster, text: str) -> None:
    """Lets the API server judge objects as if they were made; raises ClusterError."""
    dry_run = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    kubectl(cluster, *dry_run, "--filename=-", stdin=text)


@pytest.mark.parametrize("options", [(), WITH_ALL], ids=["as it is", "with all"])
def test_the_api_server_takes_all_that_is_rendered(cluster: Cluster, options: tuple[str, ...]) -> None:
    check(cluster, rendered(cluster, *options))


def test_datasets_that_cannot_be_meant_are_refused(cluster: Cluster) -> None:
    nfs = {"nfs": {"server": "nfs.example", "path": "/export"}}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"source": "relative"}, "spec.source in body should match"),
        ({"source": "s3://id:key@bucket/x"}, "credentials do not belong into the source"),
        ({"source": "/a/../b"}, "the source has a .. in it"),
        ({"source": "/a", "packTo": "/a"}, "packTo is the source itself"),
        ({"source": "/a", "mount": {}}, "give exactly one of nfs, persistentVolumeClaim, hostPath"),
        ({"source": "/a", "mount": {**nfs, "hostPath": {"path": "/a"}}}, "give exactly one of nfs"),
        ({"source": "/a", "prefetch": {}}, "give nodes, nodeSelector or both"),
        ({"source": "/a", "maxAge": "soon"}, "spec.maxAge in body should match"),
        ({"source": "/a", "options": {"storage": {"secret_access_key": "x"}}}, "do not belong into the options"),
    ]
    taken = {"source": "s3://bucket/a", "mount": nfs, "options": {"storage": {"region": "eu-1"}}, "maxAge": "90s"}
    items = [
        {"apiVersion": "dsagent.io/v1alpha1", "kind": "Dataset", "metadata": {"name": f"d{place}"}, "spec": spec}
        for place, spec in enumerate([*(spec for spec, _ in refused), taken])
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    answer = kubectl(cluster, "create", "--dry-run=server", "--filename=-", check=False, stdin=text)
    for place, (_, said) in enumerate(refused):
        assert [line for line in answer.stderr.splitlines() if f'"d{place}"' in line and said in line], said
    assert answer.stdout.strip() == f"dataset.dsagent.io/d{len(refused)} created (server dry run)"


@pytest.mark.full
def test_the_definitions_of_others_take_what_is_rendered_for_them(cluster: Cluster) -> None:
    definitions = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(foreign_definitions())})
    kubectl(cluster, "apply", "--server-side", "--filename=-", stdin=definitions)
    try:
        names = [one["metadata"]["name"] for one in json.loads(definitions)["items"]]
        kubectl(cluster, "wait", "--for=condition=Established", "crd", *names, "--timeout=60s")
        options = ("webhook.certManager=true", "podMonitor.create=true", "podMonitor.tokenSecret.name=tokens")
        text = rendered(cluster, *(f"--set={option}" for option in options))
        check(cluster, text)
        with pytest.raises(ClusterError, match="podMetricsEndpoint"):
            check(cluster, text.replace("podMetricsEndpoints:", "podMetricsEndpoint:"))
    finally:
        kubectl(cluster, "delete", "--filename=-", stdin=definitions)


def allowed(cluster: Cluster, asked: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Of (part, verb, group, resource) and perhaps a subresource what the part's account may do in all namespaces."""
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{NAMESPACE}:dsagent-{part}",
                "resourceAttributes": dict(zip(("verb", "group", "resource", "subresource"), what, strict=False)),
            },
        }
        for part, *what in asked
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    answers = kubectl(cluster, "create", "--filename=-", "--output=jsonpath={.status.allowed} ", stdin=text).stdout
    return [one for one, answer in zip(asked, answers.split(), strict=True) if answer == "true"]


def test_nobody_may_do_more_than_is_needed(cluster: Cluster) -> None:
    forbidden = (
        ("get", "", "secrets"),
        ("list", "", "secrets"),
        ("create", "", "pods"),
        ("delete", "dsagent.io", "datasets"),
        ("delete", "dsagent.io", "nodedatasetcaches"),
        ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("impersonate", "", "users"),
    )
    parts = ("agent", "webhook", "controller", "admin")
    asked = [(part, *what) for part in parts for what in forbidden]
    asked += [(part, "patch", "dsagent.io", "datasets") for part in parts if part != "controller"]
    writes = ("agent", "patch", "dsagent.io", "nodedatasetcaches", "status")
    assert allowed(cluster, [*asked, writes]) == [writes]
    can_i = ("auth", "can-i", "get", "secrets", "--all-namespaces", f"--as={AGENT}")
    assert kubectl(cluster, *can_i, check=False).stdout.strip() == "no"


def agent_of(cluster: Cluster, node: str) -> ApiCluster:
    """The API as the agent of a node sees it."""
    return token_of(cluster, "dsagent-agent", node)


def token_of(cluster: Cluster, account: str, node: str) -> ApiCluster:
    """The API as a pod with this account of the chart sees it from a node."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    token = kubectl(cluster, "create", "token", account, f"--namespace={NAMESPACE}", *bound).stdout.strip()
    server = api_server({}, str(cluster.kubeconfig))
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return ApiCluster(server._replace(authorization=lambda: f"Bearer {token}", context=trusting), "test")


def test_an_agent_writes_its_own_nodes_cache_and_no_others(cluster: Cluster) -> None:
    agent = agent_of(cluster, "node1")
    label: dict[str, Any] = {"metadata": {"labels": {"seen": "yes"}}}
    agent.patch(NODE_DATASET_CACHES, "node1", label)
    with pytest.raises(NotPermitted, match="of its own node only: node1"):
        agent.patch(NODE_DATASET_CACHES, "node2", label)
    with pytest.raises(NotPermitted, match="of its own node only: node1"):
        agent.patch(NODE_DATASET_CACHES, "node2", {"status": _STATUS}, subresource="status")


def left(cluster: Cluster) -> set[str]:
    """What there is in the cluster with our name or of our kinds."""
    kinds = kubectl(cluster, "api-resources", "--verbs=list", "--output=name").stdout.split()
    kinds = [kind for kind in kinds if not kind.startswith(("events", "pods.metrics", "nodes.metrics", "apiservices"))]
    wanted = ("get", ",".join(kinds), "--all-namespaces", "--output=name", "--ignore-not-found")
    return {one for one in kubectl(cluster, *wanted).stdout.split() if "dsagent" in one}


def uninstall(cluster: Cluster) -> None:
    run_helm(cluster, "uninstall", "dsagent", "--wait", "--timeout=300s")


def finalizers(namespace: Namespace, name: str) -> list[str]:
    return list(namespace.get("dataset", name)["metadata"].get("finalizers") or ())


def certificate(cluster: Cluster) -> str:
    wanted = ("secret", "dsagent-webhook-certificate", f"--namespace={NAMESPACE}", "--output=jsonpath={.data}")
    return kubectl(cluster, "get", *wanted).stdout


@pytest.mark.full
def test_upgrade_from_an_earlier_chart_and_uninstall(cluster: Cluster, namespace: Namespace, sources: Path) -> None:
    namespace.apply(dataset("kept", make_files(sources / "kept"), prefetch={"nodes": 1}))
    ready = namespace.wait("dataset", "kept", lambda found: phase(found) == "Ready", "to be on a node")
    (holder,) = [one for one in cluster.nodes if one.name in ready["status"]["nodes"]]
    # The numbers of rails are kept on purpose.
    ours = ("customresourcedefinition.", "dataset.", "clusterdataset.", "configmap/dsagent-rails")
    kept = {one for one in left(cluster) if one.startswith(ours)} | {f"namespace/{NAMESPACE}"}
    assert "dataset.dsagent.io/kept" in kept
    assert finalizers(namespace, "kept")

    uninstall(cluster)
    wait_until(lambda: left(cluster) == kept, "nothing but Datasets and their definitions to be left", 90)
    assert not finalizers(namespace, "kept")
    cached = NodeInside(cluster, holder.number).disk / "versions" / namespace.name / "kept"
    assert min(path.name for path in cached.glob("*/data/*")) == "file00000"

    values = ("--set", f"image.tag={IMAGE_TAG}", "--set", f"agent.sources={{{cluster.sources}}}")
    run_helm(cluster, "install", "dsagent", str(EARLIER), *values, "--wait", "--timeout=180s")
    assert "maxAge" not in kubectl(cluster, "get", "crd", "datasets.dsagent.io", "--output=json").stdout
    before = certificate(cluster)
    install_chart(cluster, *values[2:])
    kubectl(cluster, "explain", "dataset.spec.maxAge")
    namespace.wait("dataset", "kept", lambda found: bool(found["metadata"].get("finalizers")), "to be looked after")
    assert certificate(cluster) == before


@pytest.mark.full
def test_what_removes_all_that_an_uninstalled_chart_leaves(
    cluster: Cluster, namespace: Namespace, sources: Path
) -> None:
    namespace.apply(dataset("kept", make_files(sources / "kept"), prefetch={"nodes": 1}))
    namespace.wait("dataset", "kept", lambda found: phase(found) == "Ready", "to be on a node")
    uninstall(cluster)
    try:
        for node in cluster.nodes:
            rm = ("rm", "-rf", "/host/var/lib/dsagent")
            options = (f"--namespace={NAMESPACE}", f"--image={TINY}", "--image-pull-policy=IfNotPresent")
            kubectl(cluster, "debug", f"node/{node.name}", *options, "--", *rm)
            disk = NodeInside(cluster, node.number).disk
            wait_until(lambda disk=disk: not disk.exists(), f"the data of {node.name} to be gone", 90)  # type: ignore[misc]
        kubectl(cluster, "delete", "crd", "--selector=app.kubernetes.io/part-of=dsagent")
        kubectl(cluster, "delete", "namespace", NAMESPACE)
        wait_until(lambda: left(cluster) == set(), "nothing to be left", 90)
    finally:
        install_chart(cluster)
