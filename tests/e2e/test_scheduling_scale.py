"""kube-scheduler and the scheduler plugin on 2,000 nodes that exist in the API only; no cluster is needed for it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsagent.core.cluster import EVENTS, NODES, PODS, Scope
from tools.bench.scheduler import SIZE, make_cache, make_dataset, plugin
from tools.control_plane import NAMESPACE, ControlPlane, api_node, api_pod, control_plane, kube_scheduler, make_nodes

pytestmark = pytest.mark.full

NODES_THERE = 2_000
SECONDS = 300
HOLDER, BOTH, PART = "node-0007", "node-1234", "node-1999"
SMALL = ("small-0", "small-1", "small-2")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """coco is on one node, laion with imagenet on another, laion alone on a third; three nodes have hardly any room."""
    with control_plane(Path(tmp_path_factory.mktemp("plane"))) as made:
        make_nodes(made, NODES_THERE)
        labels = {"labels": {"room": "small"}}
        small = [dict(api_node(name)) for name in SMALL]
        made.create_all(NODES, [{**one, "metadata": {**one["metadata"], **labels}} for one in small])
        for name in ("coco", "imagenet", "laion", "nobodys"):
            make_dataset(made, name)
        make_cache(made, HOLDER, "coco")
        make_cache(made, BOTH, "laion", "imagenet")
        make_cache(made, PART, "laion")
        for name in SMALL:
            make_cache(made, name, free=SIZE)
        with plugin(made) as url, kube_scheduler(made, url, 5_000):
            yield made


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def nodes_of(plane: ControlPlane, story: str, count: int, datasets: str, **spec: Any) -> Counter[str]:
    """Where so many pods go."""
    plane.create_all(PODS, [api_pod(f"{story}-{one}", datasets=datasets, **spec) for one in range(count)], NAMESPACE)
    found: Counter[str] = Counter()

    def bound() -> bool:
        pods = [one for one in plane.cluster.listing(PODS).items if one["metadata"]["name"].startswith(f"{story}-")]
        found.clear()
        found.update(one["spec"].get("nodeName", "") for one in pods)
        return len(pods) == count and not found[""]

    until(bound)
    del found[""]
    return found


def test_all_pods_go_to_the_one_holder_while_it_has_room(plane: ControlPlane) -> None:
    assert nodes_of(plane, "one-holder", 100, "coco") == {HOLDER: 100}


def test_when_the_holder_is_full_they_run_elsewhere(plane: ControlPlane) -> None:
    large = {"requests": {"cpu": "40", "dsagent.io/scheduled": "1"}, "limits": {"dsagent.io/scheduled": "1"}}
    containers = [{"name": "main", "image": "none", "resources": large}]
    found = nodes_of(plane, "full", 3, "coco", containers=containers)
    assert found[HOLDER] == 1
    assert found.total() == 3


def test_a_part_of_the_data_counts_for_nothing_and_all_of_it_for_everything(plane: ControlPlane) -> None:
    assert nodes_of(plane, "both", 20, "laion, imagenet") == {BOTH: 20}


def test_where_all_are_equal_the_other_strategies_decide(plane: ControlPlane) -> None:
    """Nobody has all of these data: the holders of a part are as good as anybody, and the pods are spread."""
    found = nodes_of(plane, "equal", 20, "laion, nobodys")
    assert max(found.values()) <= 2
    assert found[PART] + found[BOTH] <= 1


def test_data_that_no_node_could_ever_hold_leave_the_pod_pending_with_the_numbers(plane: ControlPlane) -> None:
    pod = api_pod("too-large", datasets="nobodys", nodeSelector={"room": "small"})
    plane.cluster.create(PODS, pod, NAMESPACE)

    def said() -> list[str]:
        events = plane.cluster.listing(EVENTS, Scope(NAMESPACE)).items
        return [
            one.get("note", "")
            for one in events
            if one.get("reason") == "FailedScheduling" and one["regarding"]["name"] == "too-large"
        ]

    until(lambda: bool(said()))
    (note,) = set(said())
    assert f"{len(SMALL)} cannot hold nobodys: needs 120,000," in note  # and something for each file
    assert f"{SIZE:,} can be had" in note
    assert "nodeName" not in plane.cluster.get(PODS, "too-large", NAMESPACE)["spec"]
