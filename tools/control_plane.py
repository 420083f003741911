"""etcd, an API server and kube-schedulers on loopback, without a node: for what needs nodes that exist in the API only.

The programs are those of tools.cluster. Nothing here outlives the block that started it.
"""

import json
import re
import ssl
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from dsagent.adapters.kubernetes.client import ApiCluster
from dsagent.adapters.kubernetes.config import api_server
from dsagent.core.cluster import NAMESPACES, NODES, PODS, Resource
from dsagent.core.errors import DsagentError
from tools.cluster.building import build_programs, program
from tools.cluster.certificates import issue, make_authority, make_key, write_kubeconfig
from tools.cluster.layout import API_SERVER
from tools.cluster.rooms import wait_until
from tools.cluster.scheduler import MARKER, PROFILE
from tools.crds import FOLDER as DEFINITIONS
from tools.servers import free_port, running

CLIENTS = 4
NAMESPACE = "default"
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)


@dataclass(frozen=True)
class ControlPlane:
    """A running API server. `kubeconfig` is its administrator's."""

    directory: Path
    kubeconfig: Path
    cluster: ApiCluster

    def create_all(self, resource: Resource, documents: Iterable[Mapping[str, Any]], namespace: str = "") -> None:
        """Creates objects, some at a time."""
        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(partial(self.cluster.create, resource, namespace=namespace), documents))


@dataclass(frozen=True)
class Scheduler:
    """A running kube-scheduler."""

    port: int

    def attempts(self, result: str = "scheduled") -> int:
        """How many it has made with that result, of all profiles."""
        with urllib.request.urlopen(
            f"https://127.0.0.1:{self.port}/metrics", context=_trusting(), timeout=30
        ) as answer:
            text = answer.read().decode()
        line = rf'^scheduler_schedule_attempts_total{{[^}}]*result="{result}"[^}}]*}} (\S+)'
        return int(sum(float(number) for number in re.findall(line, text, re.MULTILINE)))


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    """etcd and an API server, with the product's kinds.

    Raises:
        ClusterError: the programs cannot be built.
        TimeoutError: something does not come up.
    """
    build_programs()
    pki = directory / "pki"
    make_authority(pki)
    make_key(pki / "accounts.key")
    issue(pki, "apiserver", "kube-apiserver", addresses=["127.0.0.1"])
    issue(pki, "admin", "admin", "system:masters")
    port, store, peers = free_port(), f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    kubeconfig = directory / "admin.conf"
    write_kubeconfig(pki, "admin", kubeconfig)
    kubeconfig.write_text(kubeconfig.read_text().replace(API_SERVER, f"https://127.0.0.1:{port}"))
    etcd = [
        "etcd",
        f"--data-dir={directory}/etcd",
        f"--listen-client-urls=http://{store}",
        f"--advertise-client-urls=http://{store}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]
    server = [
        str(program("kube-apiserver")),
        f"--etcd-servers=http://{store}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--service-cluster-ip-range=10.97.0.0/24",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--service-account-key-file={pki}/accounts.key",
        f"--service-account-signing-key-file={pki}/accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        # Nobody makes accounts here, and nobody would take the taint of a new node off again.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=2000",
    ]
    with running(etcd, store), running(server, f"127.0.0.1:{port}"):
        plane = ControlPlane(directory, kubeconfig, ApiCluster(api_server({}, str(kubeconfig)), "tools"))
        wait_until(lambda: _is_ready(plane), "the API server", 120)
        plane.create_all(CRDS, [_definition(path) for path in sorted(DEFINITIONS.glob("*.yaml"))])
        yield plane


@contextmanager
def kube_scheduler(plane: ControlPlane, extender: str | None, qps: int, *, patience: str = "1s") -> Iterator[Scheduler]:
    """One with the product's profile, all nodes scored, and an extender at a URL or none, for which it waits so long;
    `qps`: its client's limit.
    """
    asked = {
        "urlPrefix": extender,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 50,
        "httpTimeout": patience,
        "nodeCacheCapable": True,
        "ignorable": True,
        "managedResources": [{"name": MARKER, "ignoredByScheduler": True}],
    }
    names = ("default-scheduler", PROFILE)
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig), "qps": qps, "burst": 2 * qps},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": name} for name in names],
        "extenders": [asked] if extender else [],
    }
    port = free_port()
    file = plane.directory / f"scheduler-{port}.json"
    file.write_text(json.dumps(configuration))
    command = [
        str(program("kube-scheduler")),
        f"--config={file}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--authentication-kubeconfig={plane.kubeconfig}",
        f"--authorization-kubeconfig={plane.kubeconfig}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    ]
    with running(command, f"127.0.0.1:{port}"):
        yield Scheduler(port)


def api_node(name: str, gpus: int = 0) -> Mapping[str, Any]:
    """A Node that is Ready and has room, and no kubelet."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "500", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    ready = {"type": "Ready", "status": "True", "reason": "Made", "message": "exists in the API only"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def api_pod(name: str, *, datasets: str = "", marked: bool = True, **spec: Any) -> Mapping[str, Any]:
    """A pod that nobody will run; marked, it is one that concerns the scheduler plugin."""
    resources = {"requests": {"cpu": "100m"}}
    if marked:
        resources = {"requests": {"cpu": "100m", MARKER: "1"}, "limits": {MARKER: "1"}}
    notes = {"dsagent.io/datasets": datasets} if datasets else {}
    container = {"name": "main", "image": "none", "resources": resources}
    metadata = {"name": name, "namespace": NAMESPACE, "annotations": notes}
    body = {"schedulerName": PROFILE, "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def make_nodes(plane: ControlPlane, count: int) -> list[str]:
    """So many; their names."""
    names = [f"node-{number:04}" for number in range(count)]
    plane.create_all(NODES, map(api_node, names))
    return names


def _is_ready(plane: ControlPlane) -> bool:
    try:
        return bool(plane.cluster.get(NAMESPACES, NAMESPACE))
    except DsagentError:
        return False


def _definition(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _trusting() -> ssl.SSLContext:
    """kube-scheduler makes its own certificate at its start."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def remove_pods(plane: ControlPlane) -> None:
    """All of them, at once: nobody runs them."""
    names = [pod["metadata"]["name"] for pod in plane.cluster.listing(PODS).items]
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(lambda name: plane.cluster.delete(PODS, name, NAMESPACE), names))
