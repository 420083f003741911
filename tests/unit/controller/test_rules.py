"""What the controller decides."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dsagent.api.v1alpha1.dataset import Dataset, DatasetStatus, Prefetch
from dsagent.api.v1alpha1.meta import LabelSelector
from dsagent.api.v1alpha1.node_dataset_cache import NodeVersion
from dsagent.entrypoints.controller.rules import (
    LONGEST_DELETION,
    Copy,
    NodeState,
    chosen_nodes,
    may_go,
    next_look,
    status_of,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OLD, NEW = "xxh3:" + "0" * 32, "xxh3:" + "1" * 32


def dataset(status: DatasetStatus | None = None, deleted: datetime | None = None, **spec: Any) -> Dataset:
    names = {"name": "coco", "namespace": "research", "uid": "u", "generation": 3, "deletionTimestamp": deleted}
    found = Dataset.model_validate({"metadata": names, "spec": {"source": "/mnt/coco", **spec}})
    return found.model_copy(update={"status": status})


def nodes(*names: str, **others: Any) -> dict[str, NodeState]:
    fields: dict[str, Any] = {"labels": {}, "ready": True, "schedulable": True, "has_agent": True} | others
    return {name: NodeState(name=name, **fields) for name in names}


def copy(node: str, state: str = "Ready", version: str = NEW, **fields: Any) -> Copy:
    found = {"namespace": "research", "name": "coco", "version": version, "state": state, **fields}
    return Copy(node, NodeVersion.model_validate(found))


@pytest.mark.parametrize(
    ("copies", "phase"),
    [
        ([], "Pending"),
        ([copy("a", "Pending", "")], "Pending"),
        ([copy("a", "Caching", "")], "Caching"),
        ([copy("a", "Caching", ""), copy("b")], "Ready"),
        ([copy("a", "Failed", "", message="no such bucket")], "Failed"),
        ([copy("a", "Failed", ""), copy("b", "Caching", "")], "Caching"),
        ([copy("gone")], "Pending"),
    ],
)
def test_the_phase_is_what_nodes_that_are_there_say(copies: list[Copy], phase: str) -> None:
    assert status_of(dataset(), nodes("a", "b"), copies, NOW).phase == phase


def test_the_current_version_is_the_one_that_was_last_found_at_the_source() -> None:
    copies = [
        copy("a", version=OLD, checked=NOW - timedelta(hours=2), files=1, bytes=10),
        copy("b", version=NEW, checked=NOW - timedelta(hours=1), files=2, bytes=147_000_000_000),
        copy("c", version=NEW),
    ]
    status = status_of(dataset(), nodes("a", "b", "c"), copies, NOW)
    assert (status.version, status.files, status.size) == (NEW, 2, "147 GB")
    assert (status.node_count, status.nodes) == (2, ["b", "c"])
    assert status.observed_generation == 3


def test_a_failure_is_said_with_its_node_and_goes_when_it_is_over() -> None:
    failed = status_of(dataset(), nodes("a"), [copy("a", "Failed", "", message="no such bucket")], NOW)
    (cached,) = failed.conditions
    assert (cached.status, cached.reason, cached.message) == ("False", "Failed", "a: no such bucket")
    well = status_of(dataset(failed), nodes("a"), [copy("a")], NOW + timedelta(hours=1))
    (cached,) = well.conditions
    assert (cached.status, cached.reason, cached.message) == ("True", "OnNodes", "on 1 node")
    assert cached.last_transition_time == NOW + timedelta(hours=1)


def test_nothing_is_written_when_nothing_has_changed() -> None:
    copies = [copy("a", checked=NOW)]
    wish: dict[str, Any] = {"prefetch": {"nodes": 2}}
    first = status_of(dataset(**wish), nodes("a", "b"), copies, NOW)
    again = status_of(dataset(first, **wish), nodes("a", "b"), copies, NOW + timedelta(hours=5))
    assert again.document() == first.document()


def test_prefetch_chooses_as_many_as_are_asked_for_and_stays_with_them() -> None:
    everywhere = nodes(*"abcdefgh")
    chosen = chosen_nodes("u", Prefetch(nodes=3), everywhere, ())
    assert len(chosen) == 3
    assert chosen_nodes("u", Prefetch(nodes=3), everywhere | nodes("z"), chosen) == chosen
    away = everywhere | nodes(chosen[0], ready=False)
    assert chosen_nodes("u", Prefetch(nodes=3), away, chosen) == chosen
    gone = {name: node for name, node in everywhere.items() if name != chosen[0]}
    instead = chosen_nodes("u", Prefetch(nodes=3), gone, chosen)
    assert set(chosen[1:]) < set(instead)
    assert len(instead) == 3
    assert {tuple(chosen_nodes(str(n), Prefetch(nodes=3), everywhere, ())) for n in range(20)} != {tuple(chosen)}


def test_prefetch_is_for_nodes_that_match_and_are_fit() -> None:
    labelled = nodes("a", "b", labels={"gpu": "h100"}) | nodes("c")
    selector = LabelSelector(match_labels={"gpu": "h100"})
    assert chosen_nodes("u", Prefetch(node_selector=selector), labelled, ()) == ["a", "b"]
    assert chosen_nodes("u", Prefetch(node_selector=selector, nodes=1), labelled, ["b"]) == ["b"]
    unfit = nodes("a", ready=False) | nodes("b", schedulable=False) | nodes("c", has_agent=False) | nodes("d")
    assert chosen_nodes("u", Prefetch(nodes=4), unfit, ()) == ["d"]


def test_prefetch_says_how_far_it_is() -> None:
    wish: dict[str, Any] = {"prefetch": {"nodes": 2}}
    half = status_of(dataset(**wish), nodes("a", "b"), [copy("a")], NOW)
    assert half.prefetch
    assert (half.prefetch.nodes, half.prefetch.ready, half.prefetch.renewed) == (["a", "b"], 1, NOW)
    assert [(one.type, one.status, one.reason) for one in half.conditions] == [
        ("Cached", "True", "OnNodes"),
        ("Prefetched", "False", "UnderWay"),
    ]
    done = status_of(dataset(half, **wish), nodes("a", "b"), [copy("a"), copy("b")], NOW)
    assert [one.status for one in done.conditions] == ["True", "True"]
    few = status_of(dataset(prefetch={"nodes": 5}), nodes("a"), [copy("a")], NOW)
    assert [one.reason for one in few.conditions] == ["OnNodes", "TooFewNodes"]


def test_a_prefetch_ends_when_its_time_is_over_or_nobody_wants_it() -> None:
    wish: dict[str, Any] = {"prefetch": {"nodes": 1, "until": NOW + timedelta(hours=1)}}
    before = status_of(dataset(**wish), nodes("a"), [copy("a")], NOW)
    assert before.prefetch
    for after in (
        status_of(dataset(before, **wish), nodes("a"), [copy("a")], NOW + timedelta(hours=1)),
        status_of(dataset(before), nodes("a"), [copy("a")], NOW),
        status_of(dataset(before, deleted=NOW, **wish), nodes("a"), [copy("a")], NOW),
    ):
        assert after.prefetch is None
        assert [one.type for one in after.conditions] == ["Cached"]


def test_max_age_renews_a_prefetch() -> None:
    wish: dict[str, Any] = {"prefetch": {"nodes": 1}, "maxAge": "1h"}
    first = status_of(dataset(**wish), nodes("a"), [], NOW)
    early = status_of(dataset(first, **wish), nodes("a"), [], NOW + timedelta(minutes=59))
    late = status_of(dataset(early, **wish), nodes("a"), [], NOW + timedelta(minutes=60))
    never = status_of(dataset(first, check="never", **wish), nodes("a"), [], NOW + timedelta(days=9))
    found = [status.prefetch.renewed for status in (first, early, late, never) if status.prefetch]
    assert found == [NOW, NOW, NOW + timedelta(hours=1), NOW]
    assert next_look([dataset(first, **wish)], NOW + timedelta(minutes=59, seconds=50)) == 10
    assert next_look([dataset(first, **wish)], NOW) == 60


@pytest.mark.parametrize(
    ("copies", "where", "after", "free"),
    [
        ([], nodes("a"), timedelta(0), True),
        ([copy("a")], nodes("a"), timedelta(0), False),
        ([copy("a", in_use=True)], nodes("a"), timedelta(0), True),
        ([copy("gone")], nodes("a"), timedelta(0), True),
        ([copy("a")], nodes("a", ready=False), timedelta(0), True),
        ([copy("a")], nodes("a"), LONGEST_DELETION + timedelta(seconds=1), True),
    ],
    ids=["no copy", "unused copy", "used copy", "node gone", "node away", "too long"],
)
def test_a_deletion_cannot_hang(
    copies: list[Copy], where: dict[str, NodeState], after: timedelta, *, free: bool
) -> None:
    assert may_go(dataset(deleted=NOW), where, copies, NOW + after) == free
    assert not may_go(dataset(), where, copies, NOW)
