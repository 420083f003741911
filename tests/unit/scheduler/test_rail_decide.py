"""The decision for a job from a whole view: which nodes vote, and what is done where none can."""

from typing import Any

import pytest

from scheduler_plugin.facts import Host, Taint
from scheduler_plugin.rail.ballots import decide, is_class
from scheduler_plugin.rail.mutation import Refusal, for_our_scheduler, patch, wants_some_rail, with_class
from scheduler_plugin.rail.placement import takes
from scheduler_plugin.settings import Settings
from scheduler_plugin.view import View
from tests.unit.scheduler.worlds import Object, cache, dataset, devices, held, node, pod, world

SOME = "dsagent.io/gpu"
ONE, TWO = "dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2"


def gpus(name: str, one: int, two: int, **states: Any) -> Object:
    """A node with so many devices of each class."""
    made = [
        {"id": f"{resource}-{number}", "resource": resource, **states}
        for resource, count in ((ONE, one), (TWO, two))
        for number in range(count)
    ]
    return devices(name, *made)


def asking(count: int = 1, datasets: str = "", **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = dict(pod("", datasets, devices={SOME: count}))
    metadata = {"generateName": "train-", "namespace": "research", "annotations": made["metadata"]["annotations"]}
    return {"metadata": metadata, "spec": {**made["spec"], "nodeName": "", **spec}}


def decided(view: View, asked: Object, job: str = "job", **rails: Any) -> str:
    return decide(view, asked, job, Settings.model_validate({"rails": rails})).resource


def test_nodes_vote_by_what_they_have_free() -> None:
    taken = [pod("p", on="a", devices={TWO: 3})]
    view = world(*map(node, "ab"), gpus("a", 2, 4), gpus("b", 4, 3), *taken)
    found = decide(view, asking(2), "job", Settings())
    assert (found.resource, found.votes) == (ONE, {ONE: 2})
    assert decided(world(*map(node, "ab"), gpus("a", 2, 4), gpus("b", 3, 4)), asking(2)) == TWO


def test_a_holder_of_the_jobs_data_counts_more() -> None:
    view = world(
        *map(node, "abc"), gpus("a", 1, 4), gpus("b", 1, 4), gpus("c", 2, 1), dataset("coco"), cache("c", held("coco"))
    )
    assert decided(view, asking()) == TWO
    found = decide(view, asking(datasets="coco"), "job", Settings())
    assert (found.resource, found.votes) == (ONE, {ONE: 10, TWO: 2})
    assert "1 of which have data of the job" in found.reason


def test_nodes_that_the_pod_may_not_go_to_have_no_vote() -> None:
    labelled = {"kind": "Node", "metadata": {"name": "a", "labels": {"gpu": "h100"}}}
    taint = {"key": "other", "effect": "NoSchedule"}
    tainted = {"kind": "Node", "metadata": {"name": "c"}, "spec": {"taints": [taint]}}
    gone = gpus("gone", 0, 9)
    view = world(labelled, node("b"), tainted, gpus("a", 1, 0), gpus("b", 0, 2), gpus("c", 0, 3), gone)

    def votes(**spec: Any) -> Any:
        return decide(view, asking(**spec), "job", Settings()).votes

    assert votes() == {ONE: 1, TWO: 1}
    assert votes(nodeSelector={"gpu": "h100"}) == {ONE: 1}
    assert votes(tolerations=[{"key": "other", "operator": "Exists"}]) == {ONE: 1, TWO: 2}


def test_nodes_that_could_never_hold_the_data_have_no_vote() -> None:
    view = world(*map(node, "ab"), gpus("a", 0, 4), gpus("b", 1, 0), dataset("coco"), cache("a", free=10), cache("b"))
    assert decided(view, asking(datasets="coco")) == ONE
    assert decided(view, asking()) in (ONE, TWO)


def test_a_job_that_finds_no_room_now_waits_for_the_class_that_nodes_have() -> None:
    view = world(node("a"), gpus("a", 2, 4, allocated=True))
    found = decide(view, asking(3), "job", Settings())
    assert found.resource == TWO
    assert found.reason.startswith("no node has 3 free of any class now")


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (world(node("a")), "none has a class named as dsagent.io/gpu-roce{n}"),
        (world(node("a"), gpus("a", 2, 3)), "none has 4 of one class: the most that one has is 3"),
        (world(node("a"), gpus("a", 8, 0, healthy=False)), "none has a class"),
        (world(gpus("a", 8, 0)), "of the 0 nodes that the pod may run on"),
    ],
    ids=["no-topology", "too-few", "unhealthy", "no-node"],
)
def test_what_no_node_has_is_refused_with_the_numbers(view: View, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        decided(view, asking(4))
    assert said in str(refused.value)


def test_the_jobs_pods_that_have_a_node_decide_for_the_others() -> None:
    bound: Any = pod("p", on="a", devices={TWO: 1})
    bound["metadata"]["labels"] = {"dsagent.io/rail-decision": "train-1"}
    view = world(node("a"), gpus("a", 4, 1), bound)
    asked = asking()
    assert decided(view, asked) == ONE
    asked["metadata"]["labels"] = {"dsagent.io/rail-decision": "train-1"}
    assert decided(view, asked) == TWO


def test_classes_are_those_of_the_pattern() -> None:
    assert is_class("inspur.com/gpu-roce12", "inspur.com/gpu-roce{n}")
    assert not is_class("inspurXcom/gpu-roce1", "inspur.com/gpu-roce{n}")
    assert not is_class("inspur.com/gpu-roce", "inspur.com/gpu-roce{n}")
    with pytest.raises(Refusal):
        decided(world(node("a"), gpus("a", 4, 1)), asking(), classes="inspur.com/gpu-roce{n}")


def test_the_class_goes_into_requests_and_limits_of_every_container() -> None:
    amounts = {"requests": {"cpu": "1", SOME: "1"}, "limits": {SOME: "1"}}
    before = {
        "metadata": {},
        "spec": {
            "initContainers": [{"name": "i", "resources": amounts}],
            "containers": [{"name": "a", "resources": amounts}, {"name": "b"}],
        },
    }
    after = with_class(before, ONE)
    given = {"requests": {"cpu": "1", ONE: "1"}, "limits": {ONE: "1"}}
    assert after["spec"]["initContainers"][0]["resources"] == given
    assert after["spec"]["containers"] == [{"name": "a", "resources": given}, {"name": "b"}]
    assert wants_some_rail(before)
    assert not wants_some_rail(after)
    assert [step["path"] for step in patch(before, after)] == ["/spec/initContainers", "/spec/containers"]
    assert with_class(after, TWO) == after
    assert not patch(after, after)
    with pytest.raises(Refusal, match="leave one out"):
        with_class(
            asking() | {"spec": {"containers": [{"name": "a", "resources": {"limits": {SOME: 1, ONE: 1}}}]}}, ONE
        )


def test_a_pod_gets_our_scheduler_and_one_marker_unless_it_names_another() -> None:
    after = for_our_scheduler(
        asking() | {"spec": {"schedulerName": "default-scheduler", "containers": [{"name": "a"}, {"name": "b"}]}}
    )
    marker = {"dsagent.io/scheduled": "1"}
    assert after["spec"]["schedulerName"] == "dsagent-scheduler"
    assert after["spec"]["containers"] == [
        {"name": "a", "resources": {"requests": marker, "limits": marker}},
        {"name": "b"},
    ]
    assert for_our_scheduler(after) == after
    for spec in ({"schedulerName": "volcano"}, {"nodeName": "n"}):
        other = {"spec": {"containers": [{"name": "a"}], **spec}}
        assert for_our_scheduler(other) is other


@pytest.mark.parametrize(
    ("spec", "there"),
    [
        ({}, False),
        ({"tolerations": [{"operator": "Exists"}]}, True),
        ({"tolerations": [{"key": "t", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]}, True),
        ({"tolerations": [{"key": "t", "value": "v"}]}, True),
        ({"tolerations": [{"key": "t", "value": "w"}]}, False),
        ({"tolerations": [{"key": "t", "operator": "Exists", "effect": "NoExecute"}]}, False),
    ],
)
def test_taints(spec: dict[str, Any], *, there: bool) -> None:
    assert takes(Host("n", {}, (Taint("t", "v", "NoSchedule"),)), spec) == there


@pytest.mark.parametrize(
    ("requirement", "there"),
    [
        ({"key": "cpus", "operator": "In", "values": ["8", "9"]}, True),
        ({"key": "cpus", "operator": "NotIn", "values": ["8"]}, False),
        ({"key": "gpus", "operator": "NotIn", "values": ["8"]}, True),
        ({"key": "cpus", "operator": "Exists"}, True),
        ({"key": "gpus", "operator": "DoesNotExist"}, True),
        ({"key": "cpus", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "cpus", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "gpus", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "cpus", "operator": "Near", "values": ["8"]}, False),
    ],
)
def test_required_node_affinity(requirement: Object, *, there: bool) -> None:
    host = Host("n", {"cpus": "8"}, ())

    def asked(*terms: Object) -> Object:
        required = {"nodeSelectorTerms": list(terms)}
        return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}

    assert takes(host, asked({"matchExpressions": [requirement]})) == there
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert takes(host, asked({"matchExpressions": [requirement]}, here))
    assert not takes(host, asked({}))
