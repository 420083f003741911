"""Deciding anew: whose pods are replaced, and whose never."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dsagent.core.cluster import PODS, RAIL_DECISIONS
from dsagent.core.errors import NoSuchObject
from scheduler_plugin.cluster import ClusterDecisions
from scheduler_plugin.rail.anew import NOT_BEFORE, look
from scheduler_plugin.state import State
from scheduler_plugin.view import View
from tests.fakes.cluster import MemoryCluster
from tests.unit.scheduler.test_rail_decide import ONE, TWO, gpus
from tests.unit.scheduler.worlds import node, pod, put, world

DECIDED = datetime(2026, 1, 1, tzinfo=UTC)
LATE = DECIDED + NOT_BEFORE


@pytest.fixture
def cluster() -> MemoryCluster:
    found = MemoryCluster()
    spec = {"job": {"kind": "Job", "name": "train"}, "resource": ONE, "decided": "2026-01-01T00:00:00Z"}
    found.create(RAIL_DECISIONS, {"metadata": {"name": "train-1"}, "spec": spec}, "research")

    def evict(body: Any, namespace: str, name: str) -> dict[str, Any]:
        found.delete(PODS, name, namespace, uid=body["deleteOptions"]["preconditions"]["uid"])
        return {}

    found.answers["pods/eviction"] = evict
    return found


def worker(cluster: MemoryCluster, view: View, name: str, resource: str = ONE, **change: Any) -> None:
    """A pod of the job, in the API and in the view."""
    made: Any = pod(name, devices={resource: 2})
    made["metadata"]["labels"] = {"dsagent.io/rail-decision": "train-1"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    made["metadata"] |= change.pop("metadata", {})
    made["spec"] |= change
    cluster.create(PODS, made, "research")
    put(view, made)


def full_of_one() -> View:
    """Class 1 has one free, class 2 has four."""
    return world(node("a"), gpus("a", 1, 4))


def left(cluster: MemoryCluster, view: View, now: datetime = LATE) -> tuple[int, int]:
    """How many decisions and pods there are after a look."""
    asyncio.run(look(State(view), ClusterDecisions(cluster), now))
    return len(cluster.listing(RAIL_DECISIONS).items), len(cluster.listing(PODS).items)


def test_pending_pods_are_replaced_when_another_class_has_room(cluster: MemoryCluster) -> None:
    view = full_of_one()
    for name in ("w0", "w1"):
        worker(cluster, view, name)
    assert left(cluster, view, LATE - timedelta(seconds=1)) == (1, 2)
    assert left(cluster, view) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [{"nodeName": "a"}, {"metadata": {"ownerReferences": []}}],
    ids=["has-a-node", "nobody-makes-it-again"],
)
def test_one_pod_that_cannot_be_replaced_keeps_all(cluster: MemoryCluster, change: dict[str, Any]) -> None:
    view = full_of_one()
    worker(cluster, view, "w0")
    worker(cluster, view, "w1", **change)
    assert left(cluster, view) == (1, 2)


def test_a_pod_that_the_view_has_not_seen_bound_yet_counts(cluster: MemoryCluster) -> None:
    view = full_of_one()
    worker(cluster, view, "w0")
    cluster.patch(PODS, "w0", {"spec": {"nodeName": "a"}}, "research")
    assert left(cluster, view) == (1, 1)


@pytest.mark.parametrize("counts", [(2, 4), (1, 1)], ids=["its-own-class-has-room", "no-class-has"])
def test_pods_stay_where_replacing_them_would_not_help(cluster: MemoryCluster, counts: tuple[int, int]) -> None:
    view = world(node("a"), gpus("a", *counts))
    worker(cluster, view, "w0")
    assert left(cluster, view) == (1, 1)


def test_pods_that_an_earlier_look_left_with_another_class_are_replaced(cluster: MemoryCluster) -> None:
    view = full_of_one()
    worker(cluster, view, "w0", TWO)
    worker(cluster, view, "w1")
    assert left(cluster, view, DECIDED) == (1, 1)
    with pytest.raises(NoSuchObject):
        cluster.get(PODS, "w0", "research")


def test_of_two_replicas_one_decides(cluster: MemoryCluster) -> None:
    decisions = ClusterDecisions(cluster)
    (seen,) = decisions.all()
    assert decisions.remove(seen)
    assert not decisions.remove(seen)
    cluster.create(RAIL_DECISIONS, {"metadata": {"name": "train-1"}, "spec": {}}, "research")
    assert not decisions.remove(seen)  # the one that was made since stays
