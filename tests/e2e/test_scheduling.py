"""The scheduler plugin in kube-scheduler: pods go where their data are, and all workers of a job to one rail."""

import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube import PYTHON, Namespace, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tools.cluster.certificates import issue
from tools.cluster.chart import NAMESPACE, install_chart
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster, ClusterError
from tools.cluster.rooms import wait_until
from tools.cluster.scheduler import NODE_PORT, PROFILE, SERVICE

SOME = "dsagent.io/gpu"
ONE, TWO = "dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2"
MARKER = {"dsagent.io/scheduled": "1"}
_COMPONENT = {"app.kubernetes.io/component": "scheduler"}
_SILENT = "import socket, time; s = socket.create_server(('', 9444)); time.sleep(1e6)"


def system(cluster: Cluster) -> Namespace:
    return Namespace(cluster, NAMESPACE)


def port_to(selector: dict[str, str]) -> dict[str, Any]:
    """The Service by which the machine's kube-scheduler reaches pods."""
    ports = [{"port": 443, "targetPort": 9444, "nodePort": NODE_PORT}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "extender"},
        "spec": {"type": "NodePort", "selector": selector, "ports": ports},
    }


@pytest.fixture(scope="module")
def plugin(cluster: Cluster) -> Iterator[Namespace]:
    """The chart with its scheduler part, and the agents' namespace."""
    inside = system(cluster)
    issue(cluster.pki, "scheduler-plugin", "scheduler-plugin", names=[SERVICE])
    files = [f"--cert={cluster.pki}/scheduler-plugin.crt", f"--key={cluster.pki}/scheduler-plugin.key"]
    made = inside.run("create", "secret", "tls", "scheduler-tls", *files, "--dry-run=client", "--output=json")
    inside.apply(json.loads(made), port_to(_COMPONENT))
    values = ("scheduler.create=true", "scheduler.tlsSecret=scheduler-tls", "scheduler.replicas=2")
    options = [word for value in values for word in ("--set", value)]
    install_chart(cluster, *options, "--set-file", f"scheduler.caBundle={cluster.pki}/ca.crt")
    wait_until(lambda: answers(cluster), "the plugin to answer at the node's port", 60)
    yield inside
    install_chart(cluster)
    inside.delete("service", "extender")
    inside.delete("secret", "scheduler-tls")


def answers(cluster: Cluster) -> bool:
    """Whether kube-scheduler could reach it."""
    trusting = ssl.create_default_context(cafile=str(cluster.pki / "ca.crt"))
    trusting.check_hostname = False
    try:
        with urllib.request.urlopen(
            f"https://{cluster.node(1).address}:{NODE_PORT}/readyz", timeout=5, context=trusting
        ) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def give_gpus(cluster: Cluster, node: str, counts: dict[str, int]) -> None:
    """Let a node have GPUs in the API: what its device plugin and its kubelet would say."""
    document = {"apiVersion": "dsagent.io/v1alpha1", "kind": "NodeTopology", "metadata": {"name": node}}
    kubectl(cluster, "apply", "--filename=-", stdin=json.dumps(document))
    devices = [
        {"id": f"{resource}-{number}", "resource": resource}
        for resource, count in counts.items()
        for number in range(count)
    ]
    merge = ("--subresource=status", "--type=merge", "--patch")
    kubectl(cluster, "patch", "nodetopology", node, *merge, json.dumps({"status": {"devices": devices}}))
    amounts = {resource: str(count) for resource, count in counts.items()}
    kubectl(
        cluster, "patch", "node", node, *merge, json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    )


@pytest.fixture
def gpus(cluster: Cluster, plugin: Namespace) -> Iterator[Cluster]:
    """A cluster whose nodes can be given GPUs, and have none in the end."""
    yield cluster
    nothing: dict[str, Any] = dict.fromkeys((ONE, TWO))
    change = json.dumps({"status": {"capacity": nothing, "allocatable": nothing}})
    for node in cluster.nodes:
        kubectl(cluster, "delete", "nodetopology", node.name, "--ignore-not-found")
        kubectl(cluster, "patch", "node", node.name, "--subresource=status", "--type=merge", "--patch", change)


def sleeper(name: str, **limits: str) -> dict[str, Any]:
    """A pod that stays, and asks for so much."""
    made = pod(name, "sleep", "1000")
    made["spec"]["containers"][0]["resources"] = {"limits": limits} if limits else {}
    return made


def node_of(namespace: Namespace, name: str, seconds: float = 60) -> str:
    """The node that a pod got."""
    found = namespace.wait("pod", name, lambda one: bool(one["spec"].get("nodeName")), "to get a node", seconds)
    return str(found["spec"]["nodeName"])


def classes(namespace: Namespace) -> dict[str, str]:
    """The class that each pod asks for."""
    found = {}
    for one in namespace.all("pods"):
        limits = one["spec"]["containers"][0]["resources"]["limits"]
        (found[one["metadata"]["name"]],) = [name for name in limits if name.startswith(SOME)]
    return found


def test_a_pod_goes_to_the_node_that_has_its_data_20_times_of_20(
    namespace: Namespace, plugin: Namespace, sources: Path, cluster: Cluster
) -> None:
    for number in (1, 2):
        node, name = NodeInside(cluster, number), f"data{number}"
        brings = pod(f"brings{number}", "sleep", "1000", nodeName=node.name)
        namespace.apply(dataset(name, make_files(sources / name)), annotated(brings, name))
        namespace.wait_until_running(f"brings{number}")
        says = partial(is_cached, node, f"{namespace.name}/{name}")
        wait_until(says, f"{node.name} to say that it has {name}", 30)
        namespace.delete("pod", f"brings{number}")
    pods = {f"reads{number}": number % 2 + 1 for number in range(20)}
    namespace.apply(*(annotated(sleeper(name), f"data{holder}") for name, holder in pods.items()))
    placed = {name: node_of(namespace, name) for name in pods}
    assert placed == {name: f"node{holder}" for name, holder in pods.items()}
    (first, *_) = namespace.all("pods")
    assert first["spec"]["schedulerName"] == PROFILE
    assert first["spec"]["containers"][0]["resources"]["requests"] == MARKER
    found = doctor(cluster)
    assert {one["status"] for one in found.values()} == {"ok"}, found
    assert found["replicas"]["detail"] == "2 of 2 answer"


def doctor(cluster: Cluster) -> dict[str, Any]:
    """The checks of dsctl doctor --scheduler, by name."""
    line = [sys.executable, "-m", "dsagent.entrypoints.dsctl", "doctor", "--scheduler", "--output=json"]
    environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(line, env=environ, check=False, capture_output=True, text=True)
    return {one["name"]: one for one in json.loads(done.stdout)["checks"]}


def is_cached(node: NodeInside, name: str) -> bool:
    return bool(node.cached().get(name, {}).get("state") == "Ready")


def test_each_of_three_jobs_has_one_class_that_goes_with_it_and_a_dry_run_leaves_no_record(
    namespace: Namespace, gpus: Cluster
) -> None:
    give_gpus(gpus, "node1", {ONE: 8, TWO: 8})
    template = {"spec": sleeper("x", **{SOME: "1"})["spec"]}
    kind = {"apiVersion": "batch/v1", "kind": "Job"}
    jobs = {
        name: {**kind, "metadata": {"name": name}, "spec": {"parallelism": 4, "completions": 4, "template": template}}
        for name in ("train0", "train1", "train2")
    }
    namespace.run("create", "--filename=-", "--dry-run=server", stdin=json.dumps(sleeper("alone", **{SOME: "1"})))
    named = sleeper("named", **{SOME: "1"})
    named["metadata"]["labels"] = {"dsagent.io/job": "named"}
    namespace.run("create", "--filename=-", "--dry-run=server", stdin=json.dumps(named))
    assert not namespace.all("raildecisions")
    namespace.apply(*jobs.values())
    wait_until(lambda: len(namespace.all("pods")) == 12, "all workers to be there", 60)
    decisions = {one["metadata"]["name"]: one["spec"]["resource"] for one in namespace.all("raildecisions")}
    assert len(decisions) == 3
    found = classes(namespace)
    for one in namespace.all("pods"):
        names = one["metadata"]
        assert found[names["name"]] == decisions[names["labels"]["dsagent.io/rail-decision"]]
    for name in jobs:
        namespace.delete("job", name, "--cascade=background")
    wait_until(lambda: not namespace.all("raildecisions"), "the decisions to go with their jobs", 60)


def marked(name: str) -> dict[str, Any]:
    made = sleeper(name, **MARKER)
    return {**made, "spec": {**made["spec"], "schedulerName": PROFILE}}


def schedules_all_the_same(namespace: Namespace) -> None:
    namespace.apply(
        *(marked(f"marked{number}") for number in range(3)), *(sleeper(f"plain{number}") for number in range(3))
    )
    for name in ("marked", "plain"):
        for number in range(3):
            node_of(namespace, f"{name}{number}", 30)


def test_pods_are_scheduled_while_the_extender_accepts_and_never_answers(
    namespace: Namespace, plugin: Namespace
) -> None:
    silent = pod("silent", "python3", "-c", _SILENT, image=PYTHON)
    silent["metadata"]["labels"] = {"app": "silent"}
    plugin.apply(silent, port_to({"app": "silent"}))
    try:
        plugin.wait_until_running("silent")
        schedules_all_the_same(namespace)
    finally:
        plugin.apply(port_to(_COMPONENT))
        plugin.delete("pod", "silent")


def test_without_the_plugin_pods_are_scheduled_and_one_that_wants_some_rail_is_refused(
    namespace: Namespace, plugin: Namespace, cluster: Cluster, sources: Path
) -> None:
    plugin.run("scale", "deployment", "dsagent-scheduler", "--replicas=0")
    try:
        selector = "--selector=app.kubernetes.io/component=scheduler"
        wait_until(lambda: not plugin.run("get", "pods", selector, "--output=name"), "the plugin to be gone", 60)
        schedules_all_the_same(namespace)
        with pytest.raises(ClusterError, match=r"rails\.dsagent\.io"):
            namespace.apply(sleeper("trains", **{SOME: "1"}))
        assert not namespace.get("pod", "trains")
        namespace.apply(dataset("words", make_files(sources / "words")), annotated(sleeper("reads"), "words"))
        node_of(namespace, "reads", 30)
    finally:
        plugin.run("scale", "deployment", "dsagent-scheduler", "--replicas=2")
        plugin.run("rollout", "status", "deployment", "dsagent-scheduler", "--timeout=90s")
        wait_until(lambda: answers(cluster), "the plugin to answer at the node's port", 60)
