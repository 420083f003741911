"""GPUs in classes on a real kubelet: what a pod gets, a restart of kubelet, and kubelet's verdicts as predicted."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dsagent.adapters.kubernetes.client import ApiCluster
from dsagent.adapters.kubernetes.config import api_server
from dsagent.core.cluster import NODE_TOPOLOGIES, NODES, PODS, Scope
from dsagent.core.errors import NoSuchObject, NotPermitted
from gpu_topology.predict import ADMIT, UNKNOWN, Options, Pod, Policy, predict
from gpu_topology.predict import Scope as Reach
from scheduler_plugin import parse
from scheduler_plugin.facts import NodeFacts, PodFacts
from scheduler_plugin.kubelet import _containers, _node
from tests.e2e.kube import TINY, Namespace, phase, pod
from tests.e2e.machines import FIRST, NPU, SECOND, NumaNode, allocatable, plugin_of, plugin_pod, registrations
from tests.e2e.test_chart import token_of
from tools.cluster.layout import Cluster
from tools.cluster.node import await_ready
from tools.cluster.rooms import wait_until

POLICIES = {"single-numa-node": 1, "restricted": 1, "best-effort": 2}  # and their parts of all pods
SEED = 6
COMMON = 40  # verdicts of a kind that the long run wants to have seen


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[NumaNode]:
    """The last node, with two NUMA nodes and the plugin of a machine with two rails."""
    found = NumaNode(cluster, len(cluster.nodes))
    with found.two_numa_nodes(), plugin_of(found, "roce-2socket"):
        yield found


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> ApiCluster:
    return ApiCluster(api_server({}, str(cluster.kubeconfig)), "test")


def asking(name: str, node: NumaNode, *containers: Mapping[str, str], init: Mapping[str, str] | None = None) -> Any:
    """A pod for the node whose containers have these limits, which are their requests as well."""
    made = pod(name, "sleep", "1000000", nodeName=node.name, automountServiceAccountToken=False)
    parts = [
        {"name": f"c{place}", "image": TINY, "command": ["sleep", "1000000"], "resources": {"limits": dict(limits)}}
        for place, limits in enumerate(containers)
    ]
    made["spec"]["containers"] = parts
    if init is not None:
        made["spec"]["initContainers"] = [
            {**parts[0], "name": "init", "command": ["true"], "resources": {"limits": init}}
        ]
    return made


def handed_out(api: ApiCluster, node: NumaNode) -> set[str]:
    """The devices that the node's NodeTopology says containers have."""
    status = api.get(NODE_TOPOLOGIES, node.name).get("status") or {}
    return {one["id"] for one in status.get("devices") or () if one["allocated"]}


def test_a_pod_gets_gpus_of_one_rail_and_its_function(node: NumaNode, api: ApiCluster, namespace: Namespace) -> None:
    before = handed_out(api, node)
    namespace.apply(asking("train", node, {"memory": "32Mi", FIRST: "2"}))
    namespace.wait_until_running("train")
    wait_until(lambda: len(handed_out(api, node) - before) == 2, "both GPUs to be reported", 30)
    mine = sorted(handed_out(api, node) - before)
    functions = [one.partition("/")[2] for one in mine]
    assert set(functions) < {"mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"}
    said = namespace.exec("train", "cat", "/etc/nccl.conf")
    assert said in {f"NCCL_IB_HCA=={one}\n" for one in functions}
    visible = namespace.exec("train", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip().split(",")
    numbers = [one.partition("/")[0].removeprefix("gpu") for one in mine]
    assert sorted(visible) == [f"GPU-00000000-0000-0000-0000-{int(one):012d}" for one in numbers]


def test_a_restarted_kubelet_has_its_resources_back(node: NumaNode, api: ApiCluster, namespace: Namespace) -> None:
    namespace.apply(asking("before", node, {"memory": "32Mi", SECOND: "3"}))
    namespace.wait_until_running("before")
    wait_until(lambda: len(handed_out(api, node)) >= 3, "the GPUs to be reported", 30)
    had = {one for one in handed_out(api, node) if int(one[3]) >= 4}
    plugin = plugin_pod(node)["status"]["containerStatuses"][0]
    known = registrations(node)
    node.restart_kubelet()
    await_ready(node.cluster, node.cluster.node(node.number))
    wait_until(lambda: registrations(node) == known + 3, "all resources to be registered again", 60)
    wait_until(lambda: allocatable(node).get(SECOND) == 4, "the class to be back", 60)
    namespace.apply(asking("one", node, {"memory": "32Mi", SECOND: "1"}))
    namespace.wait_until_running("one")
    namespace.apply(asking("none", node, {"memory": "32Mi", SECOND: "1"}))
    namespace.wait("pod", "none", lambda found: phase(found) == "Failed", "to be refused")
    wait_until(lambda: len(handed_out(api, node)) == 4, "all GPUs of the class to be reported", 30)
    assert had < handed_out(api, node)
    assert phase(namespace.get("pod", "before")) == "Running"
    after = plugin_pod(node)["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (plugin["containerID"], plugin["restartCount"])


def test_a_plugin_writes_its_own_nodes_topology_and_no_others(node: NumaNode, api: ApiCluster) -> None:
    plugin = token_of(node.cluster, "dsagent-topology", node.name)
    label: dict[str, Any] = {"metadata": {"labels": {"seen": "yes"}}}
    plugin.patch(NODE_TOPOLOGIES, node.name, label)
    other = {"apiVersion": "dsagent.io/v1alpha1", "kind": "NodeTopology", "metadata": {"name": "another"}}
    with pytest.raises(NotPermitted, match=f"of its own node only: {node.name}"):
        plugin.create(NODE_TOPOLOGIES, other)


def unbound(body: Any) -> PodFacts:
    """A pod as the scheduler sees it before it has a node: of those that have, it keeps less."""
    return parse.pod({**body, "spec": {name: value for name, value in body["spec"].items() if name != "nodeName"}})


class Oracle:
    """Random pods for the node, each judged by us and then by its kubelet."""

    def __init__(self, node: NumaNode, api: ApiCluster, namespace: str) -> None:
        self.node = node
        self.api = api
        self.namespace = namespace
        self.random = random.Random(SEED)
        self.there: dict[str, int] = {}  # devices of each pod that was admitted
        self.said: Counter[str] = Counter()
        self.unknown = 0
        self.wrong: list[str] = []

    def run(self, count: int, policy: str) -> None:
        """Judges so many pods under a policy, with an empty node at first and at last."""
        self.settle()
        for number in range(count):
            self.judge(f"{policy}-{number}")
            while self.there and self.random.random() < 0.35:
                self.remove(self.random.choice(sorted(self.there)))
        for name in sorted(self.there):
            self.remove(name)
        self.settle()

    def judge(self, name: str) -> None:
        self.settle()
        body = self.draw(name)
        predicted = self.predict(body)
        self.api.create(PODS, body, self.namespace)
        wait_until(lambda: bool(self.verdict(name)), f"kubelet's word on {name}", 120)
        said = self.verdict(name)
        self.said[said] += 1
        if predicted == UNKNOWN:
            self.unknown += 1
        elif predicted != said:
            self.wrong.append(f"{name}: predicted {predicted}, kubelet said {said}: {body['spec']}")
        if said == ADMIT:
            self.there[name] = self.kept(body)
        else:
            self.api.delete(PODS, name, self.namespace)

    def draw(self, name: str) -> Any:
        draw = self.random
        containers = []
        for _ in range(draw.choice((1, 1, 1, 2))):
            limits = {"memory": "16Mi", "cpu": draw.choice(("10m", "10m", "10m", "10m", "1", "2"))}
            for resource, most in draw.choice(
                (((FIRST, 4),), ((SECOND, 4),), ((NPU, 8),), ((NPU, 4), (FIRST, 2)), ((FIRST, 1), (SECOND, 1)))
            ):
                limits[resource] = str(draw.randint(1, most))
            containers.append(limits)
        init = None
        if draw.random() < 0.3 and NPU in containers[0]:  # kubelet tells nobody what an init container had more
            init = {"memory": "16Mi", "cpu": "10m", NPU: str(draw.randint(1, int(containers[0][NPU])))}
        return asking(name, self.node, *containers, init=init)

    def predict(self, body: Any) -> str:
        """By what the plugin wrote of the node, and what the API says that its pods ask for."""
        facts = unbound(body)
        topology = parse.topology(self.api.get(NODE_TOPOLOGIES, self.node.name))
        assert topology is not None
        assert topology.policies is not None
        room = self.api.get(NODES, self.node.name)["status"]["allocatable"]
        known = {name: int(parse.quantity(text) * (1000 if name == "cpu" else 1)) for name, text in room.items()}
        one = _node(facts, NodeFacts(topology=topology), topology, topology.policies)
        return predict(
            Policy(topology.policies.topology),
            Options(),
            Reach(topology.policies.scope),
            Pod(_containers(facts.containers), _containers(facts.init_containers)),
            replace(one, allocatable=known, requested=self.requested()),
        ).reason

    def requested(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for body in self.api.listing(PODS, Scope(fields=f"spec.nodeName={self.node.name}")).items:
            facts = unbound(body)
            if not facts.over:
                total["pods"] += 1
                for name in ("cpu", "memory", FIRST, SECOND, NPU):
                    main = sum(one.requests.get(name, 0) for one in facts.containers)
                    total[name] += max([main, *(one.requests.get(name, 0) for one in facts.init_containers)])
        return total

    def verdict(self, name: str) -> str:
        """What kubelet said; nothing before it has."""
        status = self.api.get(PODS, name, self.namespace).get("status") or {}
        if status.get("phase") == "Failed":
            return str(status.get("reason"))
        return ADMIT if status.get("containerStatuses") or status.get("startTime") else ""

    def kept(self, body: Any) -> int:
        """Devices of the pod."""
        limits = [one["resources"]["limits"] for one in body["spec"]["containers"]]
        return sum(int(one.get(name, 0)) for one in limits for name in (FIRST, SECOND, NPU))

    def remove(self, name: str) -> None:
        self.api.delete(PODS, name, self.namespace)
        wait_until(lambda: not self.is_there(name), f"{name} to be gone", 120)
        del self.there[name]

    def is_there(self, name: str) -> bool:
        try:
            self.api.get(PODS, name, self.namespace)
        except NoSuchObject:
            return False
        return True

    def settle(self) -> None:
        """Waits until the NodeTopology tells of all that pods have."""
        expected = sum(self.there.values())
        wait_until(lambda: len(handed_out(self.api, self.node)) == expected, f"{expected} devices to be reported", 120)


def judged(node: NumaNode, api: ApiCluster, namespace: Namespace, count: int) -> Oracle:
    oracle = Oracle(node, api, namespace.name)
    for policy, part in POLICIES.items():
        known = registrations(node)
        node.configure(topologyManagerPolicy=policy)
        wait_until(lambda known=known: registrations(node) == known + 3, "all resources to be registered again", 90)  # type: ignore[misc]
        wait_until(lambda: allocatable(node).get(NPU) == 8, "resources of the node", 90)
        wait_until(lambda policy=policy: told(api, node) == policy, "the policy to be reported", 90)  # type: ignore[misc]
        oracle.run(count * part, policy)
    print(f"kubelet said {dict(oracle.said)}; {oracle.unknown} were unknown")
    assert not oracle.wrong, "\n".join(oracle.wrong)
    assert oracle.unknown <= oracle.said.total() / 10
    return oracle


def told(api: ApiCluster, node: NumaNode) -> str:
    status = api.get(NODE_TOPOLOGIES, node.name).get("status") or {}
    return str(status.get("kubelet", {}).get("topologyManager", ""))


def test_kubelet_says_what_was_predicted(node: NumaNode, api: ApiCluster, namespace: Namespace) -> None:
    judged(node, api, namespace, 10)


@pytest.mark.full
def test_kubelet_says_what_was_predicted_of_many_pods(node: NumaNode, api: ApiCluster, namespace: Namespace) -> None:
    said = judged(node, api, namespace, 60).said
    assert min(said[one] for one in (ADMIT, "TopologyAffinityError", "UnexpectedAdmissionError")) >= COMMON
