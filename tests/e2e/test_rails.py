"""The rail webhook at a real API server, and the plugin in a real kube-scheduler; no cluster is needed for it."""

import base64
import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsagent.core.cluster import NODE_TOPOLOGIES, NODES, PODS, RAIL_DECISIONS, Resource
from dsagent.core.errors import DsagentError
from tools.bench.scheduler import plugin
from tools.cluster.building import helm
from tools.cluster.certificates import issue
from tools.cluster.chart import CHART
from tools.cluster.rooms import wait_until
from tools.control_plane import NAMESPACE, ControlPlane, api_node, control_plane, kube_scheduler
from tools.servers import free_port, running

SOME = "dsagent.io/gpu"
ONE, TWO = "dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2"
JOBS = Resource("batch", "v1", "jobs", "Job")
HOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(Path(tmp_path_factory.mktemp("plane"))) as made:
        pki = made.directory / "pki"
        issue(pki, "plugin", "plugin", addresses=["127.0.0.1"])
        yield made


@contextmanager
def replica(plane: ControlPlane) -> Iterator[str]:
    """The plugin over TLS; its address."""
    address, pki = f"127.0.0.1:{free_port()}", plane.directory / "pki"
    line = [sys.executable, "-m", "scheduler_plugin", "serve", "--listen", address]
    line += ["--tls-cert", str(pki / "plugin.crt"), "--tls-key", str(pki / "plugin.key")]
    with running(["env", f"KUBECONFIG={plane.kubeconfig}", *line], address):
        wait_until(lambda: is_ready(plane, address), "the plugin to be ready", 60)
        yield address


def trusting(plane: ControlPlane) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(plane.directory / "pki" / "ca.crt"))


def is_ready(plane: ControlPlane, address: str) -> bool:
    try:
        with urllib.request.urlopen(f"https://{address}/readyz", timeout=10, context=trusting(plane)) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def configuration(plane: ControlPlane, address: str) -> dict[str, Any]:
    """The chart's, for a webhook at an address."""
    options = ["--set", "scheduler.create=true,scheduler.tlsSecret=tls", "--show-only", "templates/rails.yaml"]
    authority = f"scheduler.caBundle={plane.directory}/pki/ca.crt"
    place = ["--namespace", "dsagent-system", "--kube-version", "1.34.3"]
    line = [str(helm()), "template", "dsagent", str(CHART), *place, *options, "--set-file", authority]
    document: dict[str, Any] = yaml.safe_load(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    for webhook in document["webhooks"]:
        service = webhook["clientConfig"].pop("service")
        webhook["clientConfig"]["url"] = f"https://{address}{service['path']}"
    return document


@pytest.fixture(scope="module")
def replicas(plane: ControlPlane) -> Iterator[list[str]]:
    """Two; the API server calls the first one's webhook."""
    with replica(plane) as first, replica(plane) as second:
        plane.cluster.create(HOOKS, configuration(plane, first))
        yield [first, second]
        plane.cluster.delete(HOOKS, "dsagent-scheduler")


def give(plane: ControlPlane, name: str, counts: dict[str, int], **kubelet: str) -> None:
    """A node with GPUs on two NUMA nodes in turn, as its kubelet and its device plugin would have it."""
    node = json.loads(json.dumps(api_node(name)))
    amounts = {resource: str(count) for resource, count in counts.items()}
    for which in ("capacity", "allocatable"):
        node["status"][which] |= amounts
    plane.cluster.create(NODES, node)
    topology = {"apiVersion": "dsagent.io/v1alpha1", "kind": "NodeTopology", "metadata": {"name": name}}
    plane.cluster.create(NODE_TOPOLOGIES, topology)
    devices = [
        {"id": f"{resource}-{number}", "resource": resource, "numaNode": number % 2}
        for resource, count in counts.items()
        for number in range(count)
    ]
    zones = [{"id": 0, "cpus": "0"}, {"id": 1, "cpus": "1"}]
    status = {"devices": devices, "zones": zones, **({"kubelet": kubelet} if kubelet else {})}
    plane.cluster.patch(NODE_TOPOLOGIES, name, {"status": status}, subresource="status")


@pytest.fixture(autouse=True)
def _clean(plane: ControlPlane) -> Iterator[None]:
    yield
    for resource, namespace in ((PODS, NAMESPACE), (RAIL_DECISIONS, NAMESPACE), (NODES, ""), (NODE_TOPOLOGIES, "")):
        for one in plane.cluster.listing(resource).items:
            plane.cluster.delete(resource, one["metadata"]["name"], namespace)


def sees(plane: ControlPlane, addresses: list[str]) -> None:
    """Wait until replicas know of no pod and of all NodeTopologies."""
    topologies = len(plane.cluster.listing(NODE_TOPOLOGIES).items)
    wanted = ['objects{kind="Pod"} 0.0', f'objects{{kind="NodeTopology"}} {topologies}.0']

    def seen(address: str) -> bool:
        with urllib.request.urlopen(f"https://{address}/metrics", timeout=10, context=trusting(plane)) as answer:
            text = answer.read().decode()
        return all(one in text for one in wanted)

    wait_until(lambda: all(map(seen, addresses)), "the plugin to see all", 30)


def job(plane: ControlPlane, name: str) -> dict[str, Any]:
    """The owner reference of the pods of a Job that was made now; nobody runs it."""
    container = {"name": "main", "image": "none"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}
    made = plane.cluster.create(JOBS, body, NAMESPACE)
    uid = made["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}


def worker(owner: dict[str, Any] | None = None, name: str = "", **limits: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": "w-"}
    if owner:
        metadata["ownerReferences"] = [owner]
    container = {"name": "main", "image": "none", "resources": {"limits": limits or {SOME: "1"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def make(plane: ControlPlane, pod: dict[str, Any]) -> str:
    """Makes a pod; the class that it asks for then."""
    return class_of(plane.cluster.create(PODS, pod, NAMESPACE))


def class_of(pod: Any) -> str:
    resources = pod["spec"]["containers"][0]["resources"]
    (found,) = [name for name in resources["limits"] if name.startswith(SOME)]
    assert resources["requests"][found] == resources["limits"][found]
    return str(found)


def node_of(plane: ControlPlane, name: str) -> str:
    def found() -> str:
        return str(plane.cluster.get(PODS, name, NAMESPACE)["spec"].get("nodeName") or "")

    wait_until(lambda: bool(found()), f"{name} to get a node", 60)
    return found()


def test_workers_get_one_class_where_each_alone_would_have_split_them(plane: ControlPlane, replicas: list[str]) -> None:
    give(plane, "node1", {ONE: 4, TWO: 3})
    sees(plane, replicas)
    owner = job(plane, "train")
    for name in ("train0", "train1", "train2"):
        assert make(plane, worker(owner, name)) == ONE
        target = {"kind": "Node", "name": "node1"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        plane.cluster.create(PODS, binding, NAMESPACE, name=name, subresource="binding")
    (decision,) = plane.cluster.listing(RAIL_DECISIONS).items
    assert (decision["spec"]["resource"], decision["spec"]["votes"]) == (ONE, {ONE: 1})
    # One of class 1 is left, and three of class 2.
    for address in replicas:
        wait_until(partial(is_dry_run_class, plane, address, TWO), "a lone pod to get the other class", 30)
    assert make(plane, worker(owner)) == ONE


def review(pod: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    request = {"uid": "1", "namespace": NAMESPACE, "object": pod, "dryRun": dry_run}
    return {"apiVersion": "admission.k8s.io/v1", "request": request}


def asked(plane: ControlPlane, address: str, pod: dict[str, Any], *, dry_run: bool = False) -> str:
    """The class that a replica's answer writes into a pod."""
    body = json.dumps(review(pod, dry_run=dry_run)).encode()
    with urllib.request.urlopen(f"https://{address}/mutate/rail", body, timeout=30, context=trusting(plane)) as answer:
        response = json.loads(answer.read())["response"]
    assert response["allowed"], response
    steps = {step["path"]: step["value"] for step in json.loads(base64.b64decode(response["patch"]))}
    (container,) = steps["/spec/containers"]
    (found,) = container["resources"]["limits"]
    return str(found)


def is_dry_run_class(plane: ControlPlane, address: str, resource: str) -> bool:
    return asked(plane, address, worker(), dry_run=True) == resource


def test_two_replicas_and_three_jobs_at_once_agree_and_a_dry_run_writes_nothing(
    plane: ControlPlane, replicas: list[str]
) -> None:
    give(plane, "node1", {ONE: 8, TWO: 8})
    sees(plane, replicas)
    owners = [job(plane, f"at-once{number}") for number in range(3)]
    for address in replicas:
        asked(plane, address, worker(owners[0]), dry_run=True)
    assert not plane.cluster.listing(RAIL_DECISIONS).items
    asks = [(address, worker(owner)) for owner in owners for address in replicas * 2]
    with ThreadPoolExecutor(len(asks)) as threads:
        found = list(threads.map(lambda one: asked(plane, *one), asks))
    assert len(plane.cluster.listing(RAIL_DECISIONS).items) == 3
    for place in range(3):
        assert len(set(found[4 * place : 4 * place + 4])) == 1


def test_a_node_whose_kubelet_would_refuse_the_pod_is_not_chosen(plane: ControlPlane, replicas: list[str]) -> None:
    """Two devices of node1 are on two NUMA nodes and its policy wants one; without the extender it is chosen."""
    give(plane, "node1", {ONE: 8}, topologyManager="single-numa-node")
    sees(plane, replicas)
    with kube_scheduler(plane, None, 50):
        plain = worker(None, "plain", **{ONE: "5"})
        plain["metadata"]["annotations"] = {"dsagent.io/scheduling": "default"}
        make(plane, plain)
        assert node_of(plane, "plain") == "node1"
        plane.cluster.delete(PODS, "plain", NAMESPACE)
    with plugin(plane) as url, kube_scheduler(plane, url, 50):
        make(plane, worker(None, "waits", **{ONE: "5"}))
        wait_until(lambda: "TopologyAffinityError" in why(plane, "waits"), "the reason", 60)


def why(plane: ControlPlane, name: str) -> str:
    conditions = plane.cluster.get(PODS, name, NAMESPACE).get("status", {}).get("conditions") or []
    return str(conditions[0].get("message", "")) if conditions else ""


def test_without_the_plugin_a_pod_that_wants_some_rail_is_refused_and_others_are_not(
    plane: ControlPlane, replicas: list[str]
) -> None:
    there = plane.cluster.get(HOOKS, "dsagent-scheduler")["webhooks"]
    away = configuration(plane, f"127.0.0.1:{free_port()}")["webhooks"]
    plane.cluster.patch(HOOKS, "dsagent-scheduler", {"webhooks": away})
    try:
        wait_until(lambda: is_refused(plane), "the webhook to be in force", 30)
        assert make(plane, worker(None, "concrete", **{ONE: "1"})) == ONE
    finally:
        plane.cluster.patch(HOOKS, "dsagent-scheduler", {"webhooks": there})


def is_refused(plane: ControlPlane) -> bool:
    try:
        plane.cluster.create(PODS, worker(), NAMESPACE)
    except DsagentError as error:
        return 'calling webhook "rails.dsagent.io"' in str(error)
    return False
