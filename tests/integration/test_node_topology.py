"""The plugin in a cluster: what it writes of its node and what it is told; kubelet and API server are of the test."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsagent.api.v1alpha1.node_topology import NodeTopology
from dsagent.core.cluster import CONFIG_MAPS, EVENTS, NODE_TOPOLOGIES, NODES
from gpu_topology.cluster import report
from gpu_topology.cluster.client import ApiServer
from gpu_topology.cluster.policies import Policies
from gpu_topology.cluster.report import Place, Report
from gpu_topology.device_plugin import kubelet_pb2 as messages
from gpu_topology.device_plugin.gpus import Gpus, Terms
from gpu_topology.device_plugin.process import CHECKPOINT, Process
from gpu_topology.device_plugin.rivals import find_rival, pod_resources
from gpu_topology.recording import load_recording
from scheduler_plugin import parse
from scheduler_plugin.facts import NodeFacts
from scheduler_plugin.kubelet import verdict
from tests.fakes.cluster import MemoryCluster
from tests.machines.build import MACHINES
from tests.support.api_server import api_server
from tests.support.command import HANG_SECONDS
from tests.support.kubelet import Kubelet
from tests.support.waiting import until

NODE, NAMESPACE, NUMBERS = "n1", "system", "rails"
FIRST, SECOND = "dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2"
SUBNETS = {"1": "10.1.1.0/24", "2": "10.1.2.0/24"}


class Plugin:
    """The plugin of a recorded machine, in a thread of this process."""

    def __init__(self, folder: Path, kubelet: Kubelet, cluster: MemoryCluster) -> None:
        self.folder = folder
        self.kubelet = kubelet
        self.cluster = cluster
        self.machine = "roce-2socket"
        self.policies = Policies("single-numa-node", "container", "static")
        self.shared: dict[str, list[str]] = {}  # what other plugins have

    @contextmanager
    def served(self, port: int, account: Path) -> Iterator[None]:
        inputs = load_recording(MACHINES / self.machine)
        folder = self.kubelet.plugins
        gpus = Gpus(
            lambda: inputs,
            self.folder / "node.json",
            Terms(self.folder),
            rival=lambda topology, own: find_rival(folder, topology, own),
        )
        gpus.numbers = {}
        place = Place(NODE, pod_resources(folder), lambda: self.policies, NAMESPACE, NUMBERS)
        started, loops = threading.Event(), []

        async def run() -> None:
            loop = asyncio.get_running_loop()
            api = ApiServer("127.0.0.1", port, account)
            observer = Report(api, place, gpus, lambda: loop.call_soon_threadsafe(process.wake))
            process = Process(folder, [gpus], observer)
            loops.append((loop, process))
            with observer.written():
                started.set()
                await process.run()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        assert started.wait(HANG_SECONDS)
        (loop, process) = loops[0]
        try:
            yield
        finally:
            loop.call_soon_threadsafe(process.stop)
            thread.join()

    def number(self, data: dict[str, str] = SUBNETS) -> None:
        self.cluster.create(CONFIG_MAPS, {"metadata": {"name": NUMBERS}, "data": data}, NAMESPACE)

    def told(self) -> Any:
        """The status of the node's object; nothing before there is one."""
        found = [one for one in self.cluster.listing(NODE_TOPOLOGIES).items if one["metadata"]["name"] == NODE]
        return found[0].get("status") or {} if found else {}

    def ready(self) -> str:
        return next((one["reason"] for one in self.told().get("conditions", ())), "")

    def devices(self, field: str) -> set[str]:
        return {one["id"] for one in self.told().get("devices", ()) if one[field]}


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Plugin]:
    with tempfile.TemporaryDirectory(prefix="nt-") as short:
        kubelet = Kubelet(Path(short))
        kubelet.start()
        cluster = MemoryCluster()
        cluster.create(NODES, {"metadata": {"name": NODE}})
        found = Plugin(tmp_path, kubelet, cluster)
        kubelet.cpus = list(range(2, 128))
        kubelet.start_pod_resources(lambda: found.shared)
        yield found
        kubelet.stop()


@pytest.fixture
def served(plugin: Plugin, tmp_path: Path) -> Iterator[Plugin]:
    plugin.number()
    with api_server(plugin.cluster, tmp_path / "account") as (port, account), plugin.served(port, account):
        until(lambda: plugin.devices("healthy"))
        yield plugin


def container(**resources: int) -> dict[str, Any]:
    amounts = {name: str(amount) for name, amount in resources.items()}
    return {"name": "main", "resources": {"limits": {"memory": "1Gi", **amounts}}}


def judged(plugin: Plugin, **resources: int) -> str:
    """What the scheduler plugin makes of the node's object, for a pod with one container."""
    found = parse.topology(plugin.cluster.get(NODE_TOPOLOGIES, NODE))
    pod = parse.pod({"metadata": {"name": "train"}, "spec": {"containers": [container(**resources)]}})
    return verdict(pod, NodeFacts(topology=found)).reason


def hand_out(plugin: Plugin, resource: str, ids: list[str], cpus: list[int]) -> None:
    """Kubelet gives a container something, and writes that down."""
    devices = [messages.ContainerDevices(resource_name=resource, device_ids=ids)]
    one = messages.ContainerResources(name="main", devices=devices, cpu_ids=cpus)
    plugin.kubelet.pods = messages.ListPodResources(pods=[messages.PodResources(name="p", containers=[one])])
    beside = plugin.kubelet.plugins / "beside"
    beside.touch()
    beside.rename(plugin.kubelet.plugins / CHECKPOINT)


def test_the_scheduler_refuses_a_node_by_what_its_plugin_wrote(served: Plugin) -> None:
    found = NodeTopology.model_validate(served.cluster.get(NODE_TOPOLOGIES, NODE))
    assert found.status is not None
    assert [(rail.subnet, rail.number, rail.resource) for rail in found.status.rails] == [
        ("10.1.1.0/24", 1, FIRST),
        ("10.1.2.0/24", 2, SECOND),
    ]
    assert found.metadata.owner_references is not None
    assert [owner.kind for owner in found.metadata.owner_references] == ["Node"]
    assert (found.status.device_count, found.status.free_count) == (8, 8)
    first = found.status.devices[0]
    assert (first.id, first.numa_node, len(first.scores)) == ("gpu0/mlx5_4", 0, 7)
    zone = found.status.zones[1]
    assert (zone.socket, zone.distances["0"] > 10, zone.cpus == zone.free_cpus) == (1, True, True)
    assert found.status.kubelet is not None
    assert found.status.kubelet.reserved_cpus == "0-1"
    assert judged(served, **{FIRST: 2, "cpu": 4}) == "Admit"
    assert judged(served, **{FIRST: 1, SECOND: 1, "cpu": 4}) == "TopologyAffinityError"


def test_what_pods_have_is_written_when_it_changes(served: Plugin) -> None:
    hand_out(served, FIRST, ["gpu1/mlx5_5", "gpu2/mlx5_6"], [2, 3])
    until(lambda: served.devices("allocated") == {"gpu1/mlx5_5", "gpu2/mlx5_6"})
    assert served.told()["freeCount"] == 6
    assert served.told()["zones"][0]["freeCpus"].startswith("4-")
    assert judged(served, **{FIRST: 3}) == "TopologyAffinityError"
    writes = served.cluster.writes
    hand_out(served, FIRST, ["gpu1/mlx5_5", "gpu2/mlx5_6"], [2, 3])
    hand_out(served, FIRST, ["gpu1/mlx5_5"], [2, 3])
    until(lambda: served.devices("allocated") == {"gpu1/mlx5_5"})
    assert served.cluster.writes == writes + 1


def test_nothing_is_served_of_a_rail_without_a_number(plugin: Plugin, tmp_path: Path) -> None:
    with api_server(plugin.cluster, tmp_path / "account") as (port, account):
        with plugin.served(port, account):
            until(lambda: plugin.told().get("rails"))
            assert [rail.get("number") for rail in plugin.told()["rails"]] == [None, None]
            assert plugin.kubelet.registered.empty()
            plugin.number({"4": "10.1.2.0/24", "9": "10.3.0.0/24"})
            assert plugin.kubelet.next_registered().resource_name == "dsagent.io/gpu-roce4"
            until(lambda: [rail.get("number") for rail in plugin.told()["rails"]] == [4, None])
        until(lambda: plugin.ready() == "Ending")
        plugin.cluster.delete(CONFIG_MAPS, NUMBERS, NAMESPACE)
        with plugin.served(port, account):  # the number is the node's for ever
            assert plugin.kubelet.next_registered().resource_name == "dsagent.io/gpu-roce4"
            until(lambda: plugin.ready() == "Serving")


def test_another_plugin_of_the_same_devices_is_said(served: Plugin) -> None:
    served.shared["nvidia.com/gpu"] = ["gpu-of-its-own"]
    (said,) = until(lambda: served.cluster.listing(EVENTS).items)
    assert (said["reason"], said["type"], said["regarding"]["name"]) == ("DevicesServedByOthers", "Warning", NODE)
    assert "nvidia.com/gpu" in said["note"]
    until(lambda: served.ready() == "DevicesServedByOthers" and not served.devices("healthy"))
    served.shared.clear()
    until(lambda: served.ready() == "Serving" and served.devices("healthy"))
    assert len(served.cluster.listing(EVENTS).items) == 1


def test_nothing_is_foretold_long_after_kubelet_said_what_pods_have(
    served: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_out(served, FIRST, ["gpu1/mlx5_5"], [])
    until(lambda: served.devices("allocated"))
    assert "kubelet" in served.told()
    monkeypatch.setattr(report, "STALE_SECONDS", 1.0)
    pod_resources(served.kubelet.plugins).unlink()
    until(lambda: "kubelet" not in served.told())
    assert served.devices("allocated") == {"gpu1/mlx5_5"}
    assert judged(served, **{FIRST: 1, SECOND: 1}) == "Unknown"


def test_a_node_without_gpus_serves_nothing_and_is_well(plugin: Plugin, tmp_path: Path) -> None:
    plugin.machine = "no-gpu"
    with api_server(plugin.cluster, tmp_path / "account") as (port, account), plugin.served(port, account):
        until(lambda: plugin.ready() == "Serving" and "kubelet" in plugin.told())
        assert (plugin.told()["rails"], plugin.told()["devices"]) == ([], [])
        assert plugin.told()["zones"]
        assert plugin.kubelet.registered.empty()


def test_an_object_that_was_removed_is_made_again(served: Plugin) -> None:
    served.cluster.delete(NODE_TOPOLOGIES, NODE)
    hand_out(served, FIRST, ["gpu0/mlx5_4"], [])
    until(lambda: served.devices("allocated") == {"gpu0/mlx5_4"})
