"""A pod that is gone from the API while its process reads on: nobody takes its dataset, whoever is asked or silent."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsagent.contract import ExitCode
from tests.e2e.kube import Namespace
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import dataset, make_files
from tests.e2e.readers import start_reader
from tools.cluster.chart import install_chart
from tools.cluster.control import start_control_plane, stop_api_server
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

_MB = 1_000_000
# Longer than a token is remembered, than a watch may be silent, and than a node's own lease lasts.
_AWAY_SECONDS = 65


@pytest.fixture
def node(cluster: Cluster) -> Iterator[NodeInside]:
    """A node with room for 100 MB."""
    install_chart(cluster, "--set", "agent.settings.DSAGENT_CAPACITY=100MB")
    found = NodeInside(cluster, 1)
    found.evict_all()
    yield found
    install_chart(cluster)


@pytest.fixture
def silence(cluster: Cluster, node: NodeInside) -> Iterator[None]:
    """Whatever has been stopped runs again after the story."""
    yield
    start_control_plane(cluster)
    node.start_containerd()


def test_its_dataset_stays_until_its_last_process_has_ended(
    namespace: Namespace, sources: Path, cluster: Cluster, node: NodeInside, silence: None
) -> None:
    held = make_files(sources / "held", count=60, size=_MB)
    wanted = make_files(sources / "wanted", count=50, size=_MB, content="b")  # needs 60 MB, and 40 are free

    def ask() -> int:
        return node.ask_on_the_node("cache", str(wanted), "--timeout=5s")

    namespace.apply(dataset("held", held))
    reader = start_reader(namespace, node, "held", held)
    # Kubelet cannot end the pod's process before its runtime is back.
    node.stop_containerd()
    namespace.run("delete", "pod", "reads", "--force", "--grace-period=0")
    assert not namespace.get("pod", "reads")
    reader.reads_on()
    assert ask() == ExitCode.STORAGE
    reader.reads_on()

    stop_api_server(cluster)
    time.sleep(_AWAY_SECONDS)  # it is what the story is about
    assert ask() == ExitCode.STORAGE
    reader.reads_on()

    start_control_plane(cluster)
    assert ask() == ExitCode.STORAGE
    reader.reads_on()

    node.start_containerd()  # kubelet kills the process, for SIGTERM does not end it
    wait_until(lambda: ask() == 0, "the dataset to be free", 90)
