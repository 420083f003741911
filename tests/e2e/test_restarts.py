"""While a dataset comes, the agent is killed, kubelet or containerd started anew: the pod starts all the same."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsagent.engine.copy import JOB_FILES
from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

_FILES, _SIZE = 2_560, 10_000
_TORN = 3 * JOB_FILES * _SIZE  # what two workers were at, and what was told and not yet kept


@pytest.fixture
def node(cluster: Cluster) -> Iterator[NodeInside]:
    """A node that fetches slowly."""
    found = NodeInside(cluster, 1)
    found.limit_bandwidth(2_000_000)
    yield found
    found.limit_bandwidth(0)


@pytest.mark.parametrize("befalls", [NodeInside.kill_agent, NodeInside.restart_kubelet, NodeInside.restart_containerd])
def test_the_pod_starts_and_nothing_whole_is_fetched_twice(
    namespace: Namespace, sources: Path, node: NodeInside, befalls: Callable[[NodeInside], None]
) -> None:
    make_files(sources / "images", _FILES, _SIZE)
    counts = pod("counts", "sh", "-c", "cat /datasets/images/* | wc -c", nodeName=node.name)
    fetched_before = node.metric("dsagent_fetched_bytes_total")
    namespace.apply(dataset("images", sources / "images"), annotated(counts, "images"))

    def there() -> int:
        return int(node.cached().get(f"{namespace.name}/images", {}).get("bytesPresent", 0))

    wait_until(lambda: there() > _FILES * _SIZE / 2, "half of the dataset to be there", 60)
    had = there()
    befalls(node)
    assert phase(namespace.wait_for_end("counts", 180)) == "Succeeded"
    assert namespace.logs("counts", "main").strip() == str(_FILES * _SIZE)

    fetched = node.metric("dsagent_fetched_bytes_total")
    if befalls is NodeInside.kill_agent:  # it counts from its start
        assert fetched <= _FILES * _SIZE - had + _TORN
    else:
        assert fetched - fetched_before == _FILES * _SIZE
