"""A source that changes while a pod uses it: the next pod has the new version, the first one keeps its own."""

import time
from pathlib import Path

from dsagent.agent.agent import FRESH_SECONDS
from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.layout import Cluster


def test_a_new_pod_gets_the_new_version_beside_the_old_one(
    namespace: Namespace, sources: Path, cluster: Cluster
) -> None:
    node = NodeInside(cluster, 1)
    source = make_files(sources / "words", count=2, size=1, content="a")
    namespace.apply(dataset("words", source), annotated(pod("stays", "sleep", "1000", nodeName=node.name), "words"))
    namespace.wait_until_running("stays")
    time.sleep(FRESH_SECONDS)  # pods that start together share what was found of the source
    (source / "file00001").write_text("changed")
    namespace.apply(annotated(pod("reads", "sh", "-c", "cat /datasets/words/*", nodeName=node.name), "words"))
    assert phase(namespace.wait_for_end("reads")) == "Succeeded"
    assert namespace.logs("reads", "main") == "achanged"
    assert namespace.exec("stays", "sh", "-c", "cat /datasets/words/*") == "aa"
    versions = [one for one in node.dsctl("ls") if one["dataset"] == f"{namespace.name}/words"]
    assert len(versions) == 2
