"""The chart: what it renders, what its parts may do, and its life from an earlier version to nothing."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from dsagent.adapters.kubernetes.client import ApiCluster
from dsagent.adapters.kubernetes.config import api_server
from dsagent.core.cluster import NODE_DATASET_CACHES
from dsagent.core.errors import NotPermitted
from tests.e2e.kube import Namespace
from tests.e2e.objects import dataset, make_files
from tools.cluster.chart import CHART, NAMESPACE, install_chart, run_helm
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import IMAGE_TAG, Cluster
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


def test_the_chart_is_rendered_alike_twice_and_the_api_server_takes_all_of_it(cluster: Cluster) -> None:
    run_helm(cluster, "lint", "--strict", str(CHART))
    for options in ((), WITH_ALL):
        text = rendered(cluster, *options)
        assert rendered(cluster, *options) == text
        dry_run = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
        kubectl(cluster, *dry_run, "--filename=-", stdin=text)


def may(cluster: Cluster, account: str, *what: str) -> bool:
    asked = kubectl(cluster, "auth", "can-i", *what, f"--as={account}", check=False)
    return asked.stdout.strip() == "yes"


def test_nobody_may_read_secrets_everywhere(cluster: Cluster) -> None:
    for part in ("agent", "webhook", "controller", "admin"):
        account = f"system:serviceaccount:{NAMESPACE}:dsagent-{part}"
        assert not may(cluster, account, "get", "secrets", "--all-namespaces")
        assert not may(cluster, account, "list", "secrets", f"--namespace={NAMESPACE}")
        assert not may(cluster, account, "create", "pods", "--all-namespaces")
    assert may(cluster, AGENT, "patch", "nodedatasetcaches", "--subresource=status")


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
    """What there is of ours."""
    kinds = kubectl(cluster, "api-resources", "--verbs=list", "--output=name").stdout.split()
    kinds = [kind for kind in kinds if not kind.startswith(("events", "pods.metrics", "nodes.metrics"))]
    wanted = ("get", ",".join(kinds), "--all-namespaces", "--output=name", "--ignore-not-found")
    named = kubectl(cluster, *wanted, "--selector=app.kubernetes.io/part-of=dsagent").stdout.split()
    ours = kubectl(cluster, "get", "dataset,clusterdataset,nodedatasetcache", *wanted[2:]).stdout.split()
    return {*named, *ours}


@pytest.mark.full
def test_upgrade_from_an_earlier_chart_and_uninstall(cluster: Cluster, namespace: Namespace, sources: Path) -> None:
    definitions = {one for one in left(cluster) if one.startswith("customresourcedefinition")}
    namespace.apply(dataset("kept", make_files(sources / "kept")))
    namespace.wait("dataset", "kept", lambda found: bool(found["metadata"].get("finalizers")), "to be looked after")

    run_helm(cluster, "uninstall", "dsagent", "--wait", "--timeout=180s")
    kept = definitions | {"dataset.dsagent.io/kept"}
    wait_until(lambda: left(cluster) == kept, "nothing but Datasets and their definitions to be left", 90)
    assert not namespace.get("dataset", "kept")["metadata"].get("finalizers")

    values = ("--set", f"image.tag={IMAGE_TAG}", "--set", f"agent.sources={{{cluster.sources}}}")
    run_helm(cluster, "install", "dsagent", str(EARLIER), *values, "--wait", "--timeout=180s")
    assert "maxAge" not in kubectl(cluster, "get", "crd", "datasets.dsagent.io", "--output=json").stdout
    certificate = kubectl(
        cluster, "get", "secret", "dsagent-webhook-certificate", f"--namespace={NAMESPACE}", "--output=jsonpath={.data}"
    ).stdout
    install_chart(cluster, *values[2:])
    kubectl(cluster, "explain", "dataset.spec.maxAge")
    namespace.wait("dataset", "kept", lambda found: bool(found["metadata"].get("finalizers")), "to be looked after")
    again = kubectl(
        cluster, "get", "secret", "dsagent-webhook-certificate", f"--namespace={NAMESPACE}", "--output=jsonpath={.data}"
    ).stdout
    assert again == certificate
