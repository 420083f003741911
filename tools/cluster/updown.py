"""The whole cluster, up and down."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.cluster import cgroups
from tools.cluster.chart import install_chart
from tools.cluster.control import control_room, make_identities, start_control_plane
from tools.cluster.images import abandon_build
from tools.cluster.layout import Cluster
from tools.cluster.network import make_bridge, remove_bridge
from tools.cluster.node import NodeOptions, await_ready, node_room, open_node, start_kubelet, start_proxy
from tools.cluster.rooms import close_room


def up(cluster: Cluster, nodes: int, store: Path, options: NodeOptions) -> None:
    """Start what does not run yet; returns when all nodes are ready and the chart is installed.

    Raises:
        ClusterError: something did not start; what did runs on, for its logs and for another attempt.
    """
    begun = time.monotonic()
    wanted = [cluster.node(number + 1) for number in range(nodes)]
    make_bridge()
    make_identities(cluster)
    with ThreadPoolExecutor() as threads:
        opened = [threads.submit(open_node, cluster, node, wanted, options, store) for node in wanted]
        start_control_plane(cluster)
        for opening in opened:
            opening.result()
    for node in wanted:
        start_kubelet(cluster, node)
        start_proxy(cluster, node)
    for node in wanted:
        await_ready(cluster, node)
    install_chart(cluster)
    print(f"ready after {time.monotonic() - begun:.0f} s: export KUBECONFIG={cluster.kubeconfig}", flush=True)


def down(cluster: Cluster) -> None:
    """Remove all that `up` has made, however far it came."""
    nodes = cluster.nodes
    for room in (*(node_room(cluster, node) for node in nodes), control_room(cluster)):
        close_room(room)
    abandon_build()
    cgroups.remove()
    remove_bridge(nodes)
    if cluster.directory.exists():
        shutil.rmtree(cluster.directory)
