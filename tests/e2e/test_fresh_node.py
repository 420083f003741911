"""A node that has no agent yet: a Job of one attempt waits for it, and succeeds."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import ROOT, NodeInside
from tests.e2e.objects import annotated, dataset, job, make_files
from tools.cluster.chart import NAMESPACE, install_chart
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

pytestmark = pytest.mark.full

_LATE_SECONDS = 60


@pytest.fixture
def bare_node(cluster: Cluster) -> Iterator[NodeInside]:
    """The second node, as if no agent had ever been there."""
    node = NodeInside(cluster, 2)
    install_chart(cluster, "--set", "agent.nodeSelector.kubernetes\\.io/hostname=node1")
    system = Namespace(cluster, NAMESPACE)
    agents = "--selector=app.kubernetes.io/component=agent"
    wait_until(
        lambda: len(system.run("get", "pods", agents, "--output=name").split()) == 1, "node2 to have no agent", 60
    )
    node.room.run("rm", "-rf", ROOT)
    yield node
    install_chart(cluster)


def test_a_job_waits_for_the_agent(
    cluster: Cluster, namespace: Namespace, sources: Path, bare_node: NodeInside
) -> None:
    wanted = annotated(pod("trains", "sh", "-c", "cat /datasets/words/*", nodeName=bare_node.name), "words")
    namespace.apply(dataset("words", make_files(sources / "words", count=1, size=3)), job(wanted))
    wait_until(lambda: bool(namespace.all("pods")), "the Job to have a pod", 30)
    time.sleep(_LATE_SECONDS)  # the agent's
    (waiting,) = namespace.all("pods")
    assert phase(waiting) == "Pending"
    install_chart(cluster)
    namespace.wait("job", "trains", lambda found: found.get("status", {}).get("succeeded") == 1, "to succeed", 180)
