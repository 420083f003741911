"""A node whose cache, images and pods share one small disk, with kubelet's thresholds: the cache alone gives way."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.images import last_store
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster
from tools.cluster.node import NodeOptions, await_ready, node_room, open_node, start_kubelet, start_proxy
from tools.cluster.rooms import close_room, wait_until

pytestmark = pytest.mark.full

_DISK = 3_500_000_000
_SIZE = 250_000_000  # of a dataset; about five find room beside the images
_PERIOD_SECONDS = 330  # kubelet looks every five minutes whether images should go
# What kubelet does where its configuration says nothing.
_DEFAULTS = {
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    },
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
}


@pytest.fixture
def node(cluster: Cluster) -> Iterator[NodeInside]:
    """A third node, for this story."""
    new = cluster.node(3)
    room = node_room(cluster, new)
    try:
        open_node(cluster, new, [*cluster.nodes, new], NodeOptions(disk=_DISK, kubelet=_DEFAULTS), last_store())
        start_kubelet(cluster, new)
        start_proxy(cluster, new)
        await_ready(cluster, new)
        found = NodeInside(cluster, new.number)
        wait_until(found.has_agent, "the new node's agent", 120)
        yield found
    finally:
        kubectl(cluster, "delete", "node", new.name, "--ignore-not-found")
        close_room(room)
        shutil.rmtree(new.directory)


def images(node: NodeInside) -> set[str]:
    listed = node.room.run("ctr", "--namespace=k8s.io", "images", "list", "--quiet").stdout
    return set(listed.split())


def has_disk_pressure(cluster: Cluster, node: NodeInside) -> bool:
    path = '{.status.conditions[?(@.type=="DiskPressure")].status}'
    return kubectl(cluster, "get", "node", node.name, f"--output=jsonpath={path}").stdout != "False"


def test_datasets_go_before_kubelet_finds_its_disk_full(
    cluster: Cluster, namespace: Namespace, sources: Path, node: NodeInside
) -> None:
    before = images(node)
    names = [f"part{number}" for number in range(8)]
    for name in names:
        source = make_files(sources / name, count=10, size=_SIZE // 10, content=name[-1])
        namespace.apply(dataset(name, source), annotated(pod(name, "true", nodeName=node.name), name))
        assert phase(namespace.wait_for_end(name)) == "Succeeded"
        namespace.delete("pod", name)
    assert 2 <= len(node.dsctl("ls")) < len(names)
    until = time.monotonic() + _PERIOD_SECONDS
    while time.monotonic() < until:
        assert not has_disk_pressure(cluster, node)
        time.sleep(5)
    assert images(node) >= before
