"""What an uninstalled chart takes with it."""

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from dsagent.adapters.kubernetes.recorder import Said
from dsagent.contract import FINALIZER
from dsagent.core.cluster import (
    CLUSTER_DATASETS,
    DATASETS,
    LEASES,
    NODE_DATASET_CACHES,
    NODE_TOPOLOGIES,
    RAIL_DECISIONS,
    metadata,
)
from dsagent.core.errors import NoSuchObject, TimedOut
from dsagent.entrypoints.controller.controller import Controller
from dsagent.entrypoints.controller.leadership import Leadership
from dsagent.entrypoints.controller.leaving import LEAVING_SECONDS, forget_nodes, let_go
from dsagent.entrypoints.controller.rail_numbers import RailNumbers
from tests.fakes.cluster import MemoryCluster


@pytest.fixture
def cluster() -> MemoryCluster:
    found = MemoryCluster()
    found.create(LEASES, {"metadata": {"name": "controller"}}, "system")
    body: dict[str, Any] = {"metadata": {"name": "coco"}, "spec": {"source": "/mnt/coco"}}
    found.create(DATASETS, body, "research")
    found.create(CLUSTER_DATASETS, body)
    for kind in (DATASETS, CLUSTER_DATASETS):
        found.patch(kind, "coco", {"metadata": {"finalizers": ["other/one", FINALIZER]}}, "research")
    return found


def leadership(cluster: MemoryCluster, identity: str) -> Leadership:
    return Leadership(cluster, "system", "controller", identity)


def finalizers(cluster: MemoryCluster) -> list[list[str]]:
    return [metadata(cluster.get(kind, "coco", "research"))["finalizers"] for kind in (DATASETS, CLUSTER_DATASETS)]


def test_our_finalizers_go_and_those_of_others_stay(cluster: MemoryCluster) -> None:
    let_go(cluster, leadership(cluster, "uninstall"), 0)
    assert finalizers(cluster) == [["other/one"], ["other/one"]]


def test_a_running_controller_puts_none_back(cluster: MemoryCluster) -> None:
    leads = leadership(cluster, "me")
    numbers = RailNumbers(cluster, "system", "rails")
    controller = Controller(cluster, leads, numbers, list[Said]().append)
    thread = threading.Thread(target=controller.run)
    thread.start()
    while not leads.leads:
        time.sleep(0.01)
    leaving = leadership(cluster, "uninstall")
    leaving.seize(LEAVING_SECONDS)
    assert not leads.renew()
    let_go(cluster, leaving, 0)
    cluster.create(DATASETS, {"metadata": {"name": "late"}, "spec": {"source": "/mnt/late"}}, "research")
    cluster.patch(DATASETS, "coco", {"spec": {"check": "never"}}, "research")
    controller.look(datetime.now(UTC))
    assert finalizers(cluster) == [["other/one"], ["other/one"]]
    controller.stop()
    thread.join()


def test_the_lease_is_taken_from_a_leader_that_renews_it(cluster: MemoryCluster) -> None:
    leader = leadership(cluster, "me")
    assert leader.renew()
    leadership(cluster, "uninstall").seize(LEAVING_SECONDS)
    spec = cluster.get(LEASES, "controller", "system")["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("uninstall", LEAVING_SECONDS)
    assert not leader.renew()


def test_without_a_lease_there_is_nobody_to_wait_for(cluster: MemoryCluster) -> None:
    cluster.delete(LEASES, "controller", "system")
    let_go(cluster, leadership(cluster, "uninstall"))
    assert finalizers(cluster) == [["other/one"], ["other/one"]]


def test_what_somebody_puts_back_for_ever_is_said(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsagent.entrypoints.controller.leaving.set_finalizer", lambda *_args, **_options: None)
    with pytest.raises(TimedOut, match="something puts them back"):
        let_go(cluster, leadership(cluster, "uninstall"), 0)


def test_what_agents_and_schedulers_have_written_goes(cluster: MemoryCluster) -> None:
    for kind in (NODE_DATASET_CACHES, NODE_TOPOLOGIES, RAIL_DECISIONS):
        cluster.create(kind, {"metadata": {"name": "n1"}}, "research")
    forget_nodes(cluster)
    for kind in (NODE_DATASET_CACHES, NODE_TOPOLOGIES, RAIL_DECISIONS):
        with pytest.raises(NoSuchObject):
            cluster.get(kind, "n1", "research")
    assert finalizers(cluster)[0] == ["other/one", FINALIZER]
