"""Two nodes: each says what it has, soon, and nothing while nothing happens."""

import json
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.e2e.kube import Namespace, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.chart import NAMESPACE
from tools.cluster.control import audit_log
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

_AGENT = f"system:serviceaccount:{NAMESPACE}:dsagent-agent"
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


def writes(cluster: Cluster) -> Counter[str]:
    """How often the agent of each node has written anything to the API server, as that counts."""
    events = [json.loads(line) for line in audit_log(cluster).read_text().splitlines()]
    agents = [event["user"] for event in events if event["user"]["username"] == _AGENT]
    return Counter(agent["extra"]["authentication.kubernetes.io/node-name"][0] for agent in agents)


def test_an_idle_node_writes_less_than_once_in_ten_seconds(cluster: Cluster) -> None:
    def quiet() -> bool:
        before = writes(cluster)
        time.sleep(_QUIET_SECONDS)  # what is measured is that time passes and nothing happens
        made = writes(cluster) - before
        return all(made[node.name] < _QUIET_SECONDS / 10 for node in cluster.nodes)

    assert set(writes(cluster)) == {node.name for node in cluster.nodes}
    wait_until(quiet, "the nodes to have told the last of what befell them, and to be quiet then", 3 * _QUIET_SECONDS)
