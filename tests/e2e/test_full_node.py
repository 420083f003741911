"""A node whose cache is full: the longest unused dataset goes, one in use stays, and who finds no room is told so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.chart import install_chart
from tools.cluster.layout import Cluster

_MB = 1_000_000


@pytest.fixture
def node(cluster: Cluster) -> Iterator[NodeInside]:
    """A node with room for 100 MB."""
    install_chart(cluster, "--set", "agent.settings.DSAGENT_CAPACITY=100MB")
    found = NodeInside(cluster, 1)
    found.evict_all()
    yield found
    install_chart(cluster)


def test_the_unused_one_goes_and_who_finds_no_room_ends_with_4(
    namespace: Namespace, sources: Path, node: NodeInside
) -> None:
    for name, size in (("used", 40), ("unused", 30), ("new", 40), ("late", 50)):
        namespace.apply(dataset(name, make_files(sources / name, count=10, size=size * _MB // 10)))

    namespace.apply(annotated(pod("uses", "sleep", "1000", nodeName=node.name), "used"))
    namespace.wait_until_running("uses")
    namespace.apply(annotated(pod("used-once", "true", nodeName=node.name), "unused"))
    assert phase(namespace.wait_for_end("used-once")) == "Succeeded"
    namespace.delete("pod", "used-once")

    # 40 MB need 48, 30 are free, and unused has 30.
    namespace.apply(annotated(pod("needs", "sleep", "1000", nodeName=node.name), "new"))
    namespace.wait_until_running("needs")
    left = {name for name in node.cached() if name.startswith(namespace.name)}
    assert left == {f"{namespace.name}/used", f"{namespace.name}/new"}
    assert "CacheEvicted" in {event["reason"] for event in namespace.all("events")}

    namespace.apply(annotated(pod("refused", "true", nodeName=node.name), "late", timeout="5s"))
    failed = namespace.wait_for_end("refused")
    (waited,) = [one for one in failed["status"]["initContainerStatuses"] if one["name"] == "dsagent-wait"]
    assert waited["state"]["terminated"]["exitCode"] == 4
