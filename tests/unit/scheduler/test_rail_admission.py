"""AdmissionReviews and their answers, over a cluster in memory and over two replicas at once."""

import asyncio
import base64
import json
from typing import Any

import pytest

from dsagent.core.cluster import RAIL_DECISIONS, Resource
from scheduler_plugin.cluster import ClusterDecisions
from scheduler_plugin.rail.admission import Admission, schedule
from scheduler_plugin.state import State
from tests.fakes.cluster import MemoryCluster
from tests.unit.scheduler.test_rail_decide import ONE, SOME, TWO, asking, gpus
from tests.unit.scheduler.worlds import node, world

JOBS = Resource("batch", "v1", "jobs", "Job")


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def replica(cluster: MemoryCluster, one: int = 4, two: int = 1) -> Admission:
    return Admission(State(world(node("a"), gpus("a", one, two))), ClusterDecisions(cluster))


def job(cluster: MemoryCluster, name: str) -> dict[str, Any]:
    """A pod of a Job that was just made."""
    made = cluster.create(JOBS, {"metadata": {"name": name}}, "research")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"], "controller": True}
    found = asking()
    found["metadata"]["ownerReferences"] = [owner]
    return found


def review(pod: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    request = {"uid": "1", "namespace": "research", "object": pod, "dryRun": dry_run}
    return {"apiVersion": "admission.k8s.io/v1", "request": request}


def asked(admission: Admission, pod: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    return dict(asyncio.run(admission.rail(review(pod, dry_run=dry_run)))["response"])


def patched(response: dict[str, Any]) -> dict[str, Any]:
    """What the patch puts where."""
    assert response["allowed"], response
    return {step["path"]: step["value"] for step in json.loads(base64.b64decode(response["patch"]))}


def class_of(response: dict[str, Any]) -> str:
    (container,) = patched(response)["/spec/containers"]
    (found,) = [name for name in container["resources"]["limits"] if name.startswith("dsagent.io/")]
    return str(found)


def test_the_first_pod_of_a_job_decides_for_all(cluster: MemoryCluster) -> None:
    first = job(cluster, "train")
    given = patched(asked(replica(cluster), first))
    (found,) = cluster.listing(RAIL_DECISIONS).items
    assert given["/metadata/labels"] == {"dsagent.io/rail-decision": found["metadata"]["name"]}
    assert given["/spec/tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert found["spec"]["resource"] == ONE
    assert found["spec"]["reason"] == "1 of 1 node that could take its pods have most of it: 1 of 1 votes"
    uid = first["metadata"]["ownerReferences"][0]["uid"]
    assert found["spec"]["job"] == {"kind": "Job", "name": "train", "uid": uid}
    assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [uid]
    # Another replica, which would choose the other class, follows.
    assert class_of(asked(replica(cluster, 1, 4), first)) == ONE
    assert class_of(asked(replica(cluster, 1, 4), job(cluster, "other"))) == TWO


def test_two_replicas_and_two_jobs_at_once_all_get_answers_and_agree(cluster: MemoryCluster) -> None:
    jobs = [job(cluster, f"train{number}") for number in range(5)]
    replicas = [replica(cluster), replica(cluster, 1, 4)]

    async def all_of_them() -> list[Any]:
        reviews = [(one.rail, review(pod)) for pod in jobs for one in replicas * 3]
        return await asyncio.gather(*(ask(what) for ask, what in reviews))

    answers = [class_of(one["response"]) for one in asyncio.run(all_of_them())]
    assert len(cluster.listing(RAIL_DECISIONS).items) == len(jobs)
    for place in range(0, len(answers), 6):
        assert len(set(answers[place : place + 6])) == 1


def test_dry_run_writes_nothing(cluster: MemoryCluster) -> None:
    pod = job(cluster, "train")
    before = cluster.writes
    assert class_of(asked(replica(cluster), pod, dry_run=True)) == ONE
    assert cluster.writes == before
    asked(replica(cluster, 1, 4), pod)
    assert class_of(asked(replica(cluster), pod, dry_run=True)) == TWO


def test_a_pod_of_no_job_gets_a_class_and_no_record(cluster: MemoryCluster) -> None:
    assert class_of(asked(replica(cluster), asking())) == ONE
    assert not cluster.writes


def test_a_pod_that_asks_for_no_rail_is_left_alone(cluster: MemoryCluster) -> None:
    pod = asking()
    pod["spec"]["containers"][0]["resources"] = {"limits": {ONE: "1"}}
    assert asked(replica(cluster), pod) == {"uid": "1", "allowed": True}


def test_what_cannot_be_decided_is_refused_with_the_reason(cluster: MemoryCluster) -> None:
    refused = asked(replica(cluster), asking(9))
    assert (refused["allowed"], refused["status"]["code"]) == (False, 403)
    assert f"dsagent: {SOME} means GPUs of one rail" in refused["status"]["message"]
    early = Admission(State(world(), unsynced=lambda: ["Node"]), ClusterDecisions(cluster))
    assert "not yet listed: Node" in asked(early, asking())["status"]["message"]
    cluster.set_down(True)
    away = asked(replica(cluster), job_of_no_cluster())
    assert (away["allowed"], away["status"]["code"]) == (False, 503)


def job_of_no_cluster() -> dict[str, Any]:
    pod = asking()
    pod["metadata"]["labels"] = {"dsagent.io/job": "train"}
    return pod


def test_a_pod_that_needs_us_gets_our_scheduler() -> None:
    given = patched(dict(schedule(review(asking()))["response"]))
    assert given["/spec/schedulerName"] == "dsagent-scheduler"
    assert given["/spec/containers"][0]["resources"]["limits"]["dsagent.io/scheduled"] == "1"
