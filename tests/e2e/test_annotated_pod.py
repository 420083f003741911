"""One annotation, and the data are there: read-only, for a user who is not root, and at once for the next pod."""

from pathlib import Path

import pytest

from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

_SCRIPT = "cd /datasets/images && cat file* && id -u; touch new; touch /run/dsagent/data/images/new; exit 0"


@pytest.fixture
def node(cluster: Cluster) -> NodeInside:
    return NodeInside(cluster, 1)


def test_it_reads_its_data_and_the_next_pod_hits(namespace: Namespace, sources: Path) -> None:
    source = make_files(sources / "images", count=2, size=3)
    reads = pod("reads", "sh", "-c", _SCRIPT, nodeName="node1")
    namespace.apply(dataset("images", source), annotated(reads, "images"))
    assert phase(namespace.wait_for_end("reads")) == "Succeeded"
    said = namespace.logs("reads", "main")
    assert said.startswith("aaaaaa1000")
    assert said.count("Read-only file system") == 2
    assert "images fetched" in namespace.logs("reads", "dsagent-wait")

    namespace.apply(annotated(reads | {"metadata": {"name": "again"}}, "images"))
    assert phase(namespace.wait_for_end("again")) == "Succeeded"
    assert "images hit" in namespace.logs("again", "dsagent-wait")


def test_a_pod_with_two_datasets_is_one_task_and_its_end_frees_its_lease(
    namespace: Namespace, sources: Path, node: NodeInside
) -> None:
    waits = pod("waits", "sleep", "1000", nodeName=node.name)
    namespace.apply(
        dataset("images", make_files(sources / "images")),
        dataset("labels", make_files(sources / "labels", content="b")),
        annotated(waits, "images, labels"),
    )
    uid = namespace.wait_until_running("waits")["metadata"]["uid"]
    (task,) = [task for task in node.dsctl("tasks") if task["id"] == uid]
    assert len(task["datasets"]) == 2

    def leased() -> list[str]:
        return [lease["owner"] for version in node.dsctl("ls") for lease in version["leases"] if uid in lease["owner"]]

    assert len(leased()) == 2
    namespace.delete("pod", "waits")
    wait_until(lambda: not leased(), "the pod's leases to end", 60)
