"""A node: its own namespaces, /var and /run, containerd, kubelet and kube-proxy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.cluster import cgroups, numa
from tools.cluster.building import program
from tools.cluster.certificates import issue, write_kubeconfig
from tools.cluster.containerd import NETWORKS, SOCKET, STORE, start_containerd
from tools.cluster.images import copy_store
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import PODS, Cluster, ClusterError, Node
from tools.cluster.network import connect
from tools.cluster.rooms import Room, give_own_disk, give_own_folders, is_running, open_room, start, stop, wait_until


@dataclass(frozen=True)
class NodeOptions:
    """How a node differs from the usual; `kubelet` is merged into its KubeletConfiguration, and with `disk` its /var is
    a filesystem of its own with so many bytes.
    """

    numa: bool = False
    disk: int | None = None
    kubelet: Mapping[str, Any] = field(default_factory=dict)


def node_room(cluster: Cluster, node: Node) -> Room:
    """Where the node's programs and its pods are."""
    return Room(node.name, node.directory, cluster.logs / node.name, own_network=True)


def open_node(cluster: Cluster, node: Node, nodes: Sequence[Node], options: NodeOptions, store: Path) -> None:
    """Make the node's namespaces, network and configuration, and start containerd with the images of `store`.

    `nodes` are all of the cluster.
    """
    room = node_room(cluster, node)
    open_room(room)
    if options.disk is None:
        copy_store(room, store, node.directory / STORE)
    else:
        give_own_disk(room, options.disk)
        room.run("cp", "--archive", str(store), str(node.directory / STORE))
    give_own_folders(room)
    if options.numa:
        numa.show_two_nodes(room)
    connect(node, room, [other for other in nodes if other != node])
    cgroups.make(node.cgroup)
    _write_files(cluster, node, options)
    start_containerd(room)


def start_kubelet(cluster: Cluster, node: Node) -> None:
    """Start kubelet, if it does not run."""
    command = [
        str(program("kubelet")),
        f"--config={node.directory}/kubelet.json",
        f"--kubeconfig={node.directory}/kubelet.conf",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    ]
    if not is_running(node_room(cluster, node), "kubelet"):
        start(node_room(cluster, node), "kubelet", command)


def start_proxy(cluster: Cluster, node: Node) -> None:
    """Start kube-proxy, if it does not run."""
    command = [
        str(program("kube-proxy")),
        f"--kubeconfig={cluster.kubeconfig}",
        "--proxy-mode=iptables",
        f"--hostname-override={node.name}",
        f"--cluster-cidr={PODS}",
        "--conntrack-max-per-core=0",  # the limit is the machine's, not the node's
    ]
    if not is_running(node_room(cluster, node), "kube-proxy"):
        start(node_room(cluster, node), "kube-proxy", command)


def restart_kubelet(cluster: Cluster, node: Node) -> None:
    """Stop kubelet and start it anew, as an upgrade does."""
    stop(node_room(cluster, node), "kubelet")
    start_kubelet(cluster, node)


def await_ready(cluster: Cluster, node: Node) -> None:
    """Wait until the API server calls the node ready.

    Raises:
        ClusterError: it does not, or kubelet ended.
    """
    room = node_room(cluster, node)
    path = '{.status.conditions[?(@.type=="Ready")].status}'

    def ready() -> bool:
        if not is_running(room, "kubelet"):
            raise ClusterError(f"kubelet of {node.name} ended; its log is {room.logs}/kubelet.log")
        done = kubectl(cluster, "get", "node", node.name, f"--output=jsonpath={path}", check=False)
        return done.stdout == "True"

    wait_until(ready, f"{node.name} to be ready; its kubelet's log is {room.logs}/kubelet.log", 120)


def _write_files(cluster: Cluster, node: Node, options: NodeOptions) -> None:
    name = f"system:node:{node.name}"
    if not (node.directory / "kubelet.conf").exists():
        issue(cluster.pki, node.name, name, "system:nodes")
        write_kubeconfig(cluster.pki, node.name, node.directory / "kubelet.conf")
    networks = node.directory / "10-bridge.conflist"
    networks.write_text(json.dumps(_cni(node), indent=1))
    node_room(cluster, node).run("install", "-D", str(networks), f"{NETWORKS}/{networks.name}")
    (node.directory / "kubelet.json").write_text(json.dumps(_kubelet(cluster, node, options), indent=1))


def _cni(node: Node) -> Mapping[str, object]:
    addresses = {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _kubelet(cluster: Cluster, node: Node, options: NodeOptions) -> Mapping[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi"},
        # One whole CPU for a pod that is Guaranteed, and nearly all of the other for the rest.
        "cpuManagerPolicy": "static",
        "kubeReserved": {"cpu": "100m"},
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{cluster.pki}/ca.crt"},
        },
        **({"topologyManagerPolicy": "single-numa-node"} if options.numa else {}),
        **options.kubelet,
    }
