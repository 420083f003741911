"""The controller on a cluster in memory."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dsagent.adapters.kubernetes.recorder import Said
from dsagent.contract import FINALIZER
from dsagent.core.cluster import (
    CLUSTER_DATASETS,
    CONFIG_MAPS,
    DATASETS,
    LEASES,
    NODE_DATASET_CACHES,
    NODE_TOPOLOGIES,
    NODES,
    Object,
    metadata,
)
from dsagent.core.errors import NoSuchObject
from dsagent.entrypoints.controller import leadership
from dsagent.entrypoints.controller.controller import Controller
from dsagent.entrypoints.controller.leadership import Leadership
from dsagent.entrypoints.controller.rail_numbers import RailNumbers, rails_of
from tests.fakes.cluster import MemoryCluster

VERSION = "xxh3:" + "0" * 32
AMOUNT = {"bytes": 10, "inodes": 0}


@pytest.fixture
def cluster() -> MemoryCluster:
    found = MemoryCluster()
    found.create(LEASES, {"metadata": {"name": "controller"}}, "system")
    for name in ("n1", "n2"):
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        found.create(NODES, {"metadata": {"name": name}, "status": status})
        found.create(NODE_DATASET_CACHES, {"metadata": {"name": name}})
        hold(found, name)
    return found


@pytest.fixture
def said() -> list[Said]:
    return []


@pytest.fixture
def controller(cluster: MemoryCluster, said: list[Said]) -> Iterator[Controller]:
    leadership = Leadership(cluster, "system", "controller", "me")
    found = Controller(cluster, leadership, RailNumbers(cluster, "system", "rails"), said.append)
    thread = threading.Thread(target=found.run)
    thread.start()
    yield found
    found.stop()
    thread.join()


def hold(cluster: MemoryCluster, node: str, *versions: dict[str, Any]) -> None:
    status = {"capacity": AMOUNT, "free": AMOUNT, "reserved": AMOUNT, "versions": versions}
    cluster.patch(NODE_DATASET_CACHES, node, {"status": status}, subresource="status")


def version(namespace: str = "research", **fields: Any) -> dict[str, Any]:
    return {"namespace": namespace, "name": "coco", "version": VERSION, "state": "Ready", **fields}


def until(holds: Callable[[], Any]) -> Any:
    """Waits for something that is to become so."""
    end = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def status(cluster: MemoryCluster, resource: Any = DATASETS, namespace: str = "research") -> Any:
    return cluster.get(resource, "coco", namespace).get("status") or {}


def make(cluster: MemoryCluster, resource: Any = DATASETS, **spec: Any) -> Object:
    body = {"metadata": {"name": "coco"}, "spec": {"source": "/mnt/coco", **spec}}
    return cluster.create(resource, body, "research")


def test_a_datasets_status_follows_its_nodes(cluster: MemoryCluster, controller: Controller, said: list[Said]) -> None:
    make(cluster, prefetch={"nodes": 2})
    until(lambda: status(cluster).get("phase") == "Pending")
    assert status(cluster)["prefetch"]["nodes"] == ["n1", "n2"]
    hold(cluster, "n1", version())
    until(lambda: status(cluster).get("nodes") == ["n1"])
    assert status(cluster)["prefetch"]["ready"] == 1
    cluster.patch(DATASETS, "coco", {"spec": {"prefetch": None}}, "research")
    until(lambda: "prefetch" not in status(cluster))
    hold(cluster, "n1")
    until(lambda: status(cluster).get("phase") == "Pending")
    assert "version" not in status(cluster)
    until(lambda: len(said) == 4)
    assert [one.reason for one in said] == ["PrefetchStarted", "Available", "PrefetchEnded", "Unavailable"]
    assert {(one.about.kind, one.about.namespace, one.about.name) for one in said} == {("Dataset", "research", "coco")}


def test_a_cluster_dataset_has_the_copies_of_its_own_namespace(cluster: MemoryCluster, controller: Controller) -> None:
    make(cluster, CLUSTER_DATASETS)
    hold(cluster, "n1", version())
    hold(cluster, "n2", version("_cluster"))
    until(lambda: status(cluster, CLUSTER_DATASETS).get("nodes") == ["n2"])


def test_a_deleted_dataset_goes_when_no_node_holds_unused_copies(
    cluster: MemoryCluster, controller: Controller, said: list[Said]
) -> None:
    make(cluster)
    hold(cluster, "n1", version())
    until(lambda: FINALIZER in metadata(cluster.get(DATASETS, "coco", "research")).get("finalizers", ()))
    until(lambda: status(cluster).get("phase") == "Ready")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.delete(DATASETS, "coco", "research")
    cluster.patch(DATASETS, "coco", {"metadata": {"deletionTimestamp": now}}, "research")
    until(lambda: status(cluster).get("phase") == "Deleting")
    cluster.delete(NODES, "n1")
    until(lambda: _is_gone(cluster))
    assert [one.note for one in said if one.reason == "Deleting"] == ["unused copies are being removed from n1"]


def _is_gone(cluster: MemoryCluster) -> bool:
    try:
        cluster.get(DATASETS, "coco", "research")
    except NoSuchObject:
        return True
    return False


def test_the_controller_numbers_what_nodes_report(cluster: MemoryCluster, controller: Controller) -> None:
    cluster.create(NODE_TOPOLOGIES, {"metadata": {"name": "n1"}})
    status = {"rails": [{"subnet": "10.1.0.0/24", "resource": "", "nics": ["mlx5_0"]}]}
    cluster.patch(NODE_TOPOLOGIES, "n1", {"status": status}, subresource="status")
    until(lambda: cluster.listing(CONFIG_MAPS).items)
    until(lambda: cluster.get(CONFIG_MAPS, "rails", "system").get("data") == {"1": "10.1.0.0/24"})
    assert rails_of(cluster.get(NODE_TOPOLOGIES, "n1")) == (("10.1.0.0/24", None),)


def test_one_replica_leads_and_another_takes_over(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("dsagent.entrypoints.controller.leadership.time.monotonic", lambda: clock[0])
    first = Leadership(cluster, "system", "controller", "first")
    second = Leadership(cluster, "system", "controller", "second")
    assert (first.renew(), second.renew()) == (True, False)
    clock[0] += 9
    assert first.renew()
    clock[0] += 9
    assert not second.renew()  # it has seen a change 9 s ago
    clock[0] += 9
    assert (first.leads, second.renew()) == (False, False)
    clock[0] += 7
    assert second.renew()
    assert not first.renew()
    second.release()
    assert first.renew()
    assert not second.renew()


def test_a_leader_that_cannot_renew_stops(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("dsagent.entrypoints.controller.leadership.time.monotonic", lambda: clock[0])
    leader = Leadership(cluster, "system", "controller", "me")
    assert leader.renew()
    cluster.down = True
    clock[0] += leadership.GIVE_UP_SECONDS - 1
    assert leader.renew()
    clock[0] += 2
    assert not leader.renew()
