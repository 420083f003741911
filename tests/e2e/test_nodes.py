"""Two nodes: each says what it has, soon, and nothing while nothing happens."""

import re
import time
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.kube import Namespace, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

_QUIET_SECONDS = 30


def says_ready(node: NodeInside, name: str) -> bool:
    return bool(node.cached().get(name, {}).get("state") == "Ready")


def test_each_node_says_what_it_has(namespace: Namespace, sources: Path, cluster: Cluster) -> None:
    name = f"{namespace.name}/images"
    first, second = NodeInside(cluster, 1), NodeInside(cluster, 2)
    namespace.apply(dataset("images", make_files(sources / "images")))
    for node in (first, second):
        namespace.apply(annotated(pod(f"on-{node.name}", "sleep", "1000", nodeName=node.name), "images"))
        namespace.wait_until_running(f"on-{node.name}")
        says = partial(says_ready, node, name)
        wait_until(says, f"{node.name} to say that it has the dataset", 2)
        assert node.cached()[name]["leases"] == 1
        assert (name in second.cached()) == (node is second)
    namespace.delete("pod", "on-node1")
    wait_until(lambda: first.cached()[name]["leases"] == 0, "node1 to say that nobody uses it", 30)
    assert second.cached()[name]["leases"] == 1


@pytest.mark.full
def test_an_idle_node_writes_less_than_once_in_ten_seconds(cluster: Cluster) -> None:
    def writes() -> float:
        text = kubectl(cluster, "get", "--raw", "/metrics").stdout
        lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
        ours = [line for line in lines if 'resource="nodedatasetcaches"' in line and re.search('verb="(PATCH|P)', line)]
        return sum(float(line.split()[-1]) for line in ours)

    before = writes()
    time.sleep(_QUIET_SECONDS)  # what is measured is that time passes and nothing happens
    assert writes() - before < 2 * _QUIET_SECONDS / 10
