"""The chart is upgraded while one pod reads its dataset and another one waits for its own: neither notices."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tests.e2e.readers import start_reader
from tools.cluster.chart import install_chart
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

_FILES, _SIZE = 60, 500_000
# Something of every part, so that each gets new pods.
_CHANGES = (
    "agent.settings.DSAGENT_CAPACITY=500GB",
    "webhook.podTimeout=1h",
    "webhook.resources.requests.cpu=26m",
    "controller.resources.requests.cpu=26m",
)


@pytest.fixture
def node(cluster: Cluster) -> Iterator[NodeInside]:
    """A node that fetches slowly until its agent is a new one."""
    yield NodeInside(cluster, 1)
    install_chart(cluster)


def test_no_read_fails_and_nothing_is_fetched_twice(
    cluster: Cluster, namespace: Namespace, sources: Path, node: NodeInside
) -> None:
    read = make_files(sources / "read", _FILES, _SIZE)
    awaited = make_files(sources / "awaited", _FILES, _SIZE, content="b")
    namespace.apply(dataset("read", read), dataset("awaited", awaited))
    reader = start_reader(namespace, node, "read", read)

    def leases() -> list[dict[str, Any]]:
        return [lease for one in node.dsctl("ls") for lease in one["leases"] if reader.uid in lease["owner"]]

    def there() -> int:
        return int(node.cached().get(f"{namespace.name}/awaited", {}).get("bytesPresent", 0))

    before, agent = leases(), node.agent()
    node.limit_bandwidth(2_000_000)
    counts = pod("counts", "sh", "-c", "cat /datasets/awaited/* | wc -c", nodeName=node.name)
    namespace.apply(annotated(counts, "awaited"))
    wait_until(lambda: there() > _FILES * _SIZE / 10, "a part of the dataset to be there", 60)
    had = there()
    install_chart(cluster, *(f"--set={change}" for change in _CHANGES))
    assert phase(namespace.wait_for_end("counts", 180)) == "Succeeded"
    assert namespace.logs("counts", "main").strip() == str(_FILES * _SIZE)

    assert node.agent() != agent
    assert had + node.metric("dsagent_fetched_bytes_total") <= _FILES * _SIZE
    assert leases() == before
    reader.reads_on()
