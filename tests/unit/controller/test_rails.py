"""RailDecisions of jobs that are only a name go when the job's pods have been gone for a while."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dsagent.contract import LABEL_RAIL_DECISION
from dsagent.core.cluster import PODS, RAIL_DECISIONS
from dsagent.entrypoints.controller.rails import GRACE, Decision, JobPod, Rails, idle_since
from tests.fakes.cluster import MemoryCluster
from tests.unit.controller.test_controller import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMED = Decision("research", "named", "1", has_owner=False)
OWNED = Decision("research", "owned", "2", has_owner=True)


def test_a_decision_is_idle_from_when_no_pod_was_seen_and_not_while_one_is_there() -> None:
    idle = idle_since([NAMED, OWNED], [], {}, NOW)
    assert idle == {NAMED.key: NOW}
    later = NOW + timedelta(minutes=1)
    assert idle_since([NAMED], [JobPod(("other", "named")), JobPod(None)], idle, later) == idle
    assert idle_since([NAMED], [JobPod(NAMED.key)], idle, later) == {}
    assert idle_since([NAMED], [], {}, later) == {NAMED.key: later}


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def rails(cluster: MemoryCluster) -> Iterator[Rails]:
    found = Rails(cluster, lambda _: None)
    for watch in found.watches:
        watch.start()
    yield found
    for watch in found.watches:
        watch.stop()


def decision(cluster: MemoryCluster, name: str, **names: Any) -> None:
    cluster.create(RAIL_DECISIONS, {"metadata": {"name": name, **names}, "spec": {}}, "research")


def left(cluster: MemoryCluster) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.listing(RAIL_DECISIONS).items]


def test_it_is_deleted_after_the_grace_and_others_stay(cluster: MemoryCluster, rails: Rails) -> None:
    decision(cluster, "named")
    decision(cluster, "owned", ownerReferences=[{"kind": "Job", "name": "j", "uid": "u", "apiVersion": "batch/v1"}])
    decision(cluster, "in-use")
    pod = {"metadata": {"name": "p", "labels": {LABEL_RAIL_DECISION: "in-use"}}}
    cluster.create(PODS, pod, "research")
    until(lambda: [len(watch.objects()) for watch in rails.watches] == [3, 1])
    rails.look(NOW)
    rails.look(NOW + GRACE - timedelta(seconds=1))
    assert left(cluster) == ["in-use", "named", "owned"]
    rails.look(NOW + GRACE)
    assert left(cluster) == ["in-use", "owned"]
    # A pod that has ended needs it no longer.
    cluster.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, "research")
    until(lambda: rails.watches[1].objects() == [JobPod(None)])
    rails.look(NOW + GRACE)
    rails.look(NOW + 2 * GRACE)
    assert left(cluster) == ["owned"]
