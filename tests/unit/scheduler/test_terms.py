"""Each term: what it says of named situations, and that its two forms are equal after any history of changes."""

import itertools
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin import parse
from scheduler_plugin.columns import Array
from scheduler_plugin.facts import Device, Needs
from scheduler_plugin.filters import kubelet_refuses, never_holds, space_reason
from scheduler_plugin.kubelet import verdict
from scheduler_plugin.scoring import score
from scheduler_plugin.settings import Settings
from scheduler_plugin.terms import Term, terms_of
from scheduler_plugin.terms.links import best_scores
from scheduler_plugin.view import View
from tests.unit.scheduler.worlds import (
    CLASSES,
    DIGESTS,
    NODES,
    Object,
    cache,
    dataset,
    devices,
    held,
    node,
    pod,
    put,
    some_objects,
    some_pods,
    world,
)


def terms(mode: str = "exact", spread: float = 1) -> tuple[Term, ...]:
    return terms_of(
        Settings.model_validate({"terms": {"dataset": {"mode": mode}, "spread": {"weight": spread, "pods": 2}}})
    )


def raw(view: View, asking: Object, mode: str = "exact", term: str = "dataset") -> list[float]:
    needs = view.needs(parse.pod(asking))
    (found,) = [one for one in terms(mode) if one.name == term]
    return list(found.columns(needs, view.columns(NODES[:3])))


@given(
    st.lists(st.tuples(some_objects(), st.booleans()), max_size=30),
    some_pods(),
    st.sampled_from(["exact", "expected-wait"]),
)
def test_the_form_for_many_nodes_equals_the_reference(
    history: Sequence[tuple[Object, bool]], asking: Object, mode: str
) -> None:
    view = View()
    half = len(history) // 2  # from there on there are arrays, which changes have to find
    for part in (history[:half], history[half:]):
        for document, there in part:
            if there:
                put(view, document)
            else:
                view.drop(document["kind"], parse.names_of(document))
        _compare(view, view.needs(parse.pod(asking)), terms(mode), [*NODES, "nobody-knows-it"])


def _compare(view: View, needs: Needs, compared: Sequence[Term], names: Sequence[str]) -> None:
    columns = view.columns(names)
    for term in compared:
        if term.applies(needs):
            one_by_one = [term.judge(needs, facts).raw for facts in columns.nodes]
            np.testing.assert_allclose(term.columns(needs, columns), one_by_one, rtol=1e-12, err_msg=term.name)
    refused = {place: why for place, facts in enumerate(columns.nodes) if (why := space_reason(needs, facts))}
    assert never_holds(needs, columns) == refused
    told = [verdict(needs.pod, facts) for facts in columns.nodes]
    assert kubelet_refuses(needs, columns).keys() == {place for place, one in enumerate(told) if one.is_refusal}
    found = score(needs, columns, compared)
    assert not found.failed
    assert all(0 <= one <= 10 for one in found.scores.tolist())


def test_exact_is_the_number_of_datasets_where_all_are_here_and_usable_and_else_nothing() -> None:
    view = world(
        *(dataset(name) for name in ("imagenet", "coco")),
        cache("n0", held("imagenet"), held("coco")),
        cache("n1", held("imagenet")),
        cache("n2", held("imagenet"), held("coco", DIGESTS[1], inUse=True)),
    )
    assert raw(view, pod("p", "imagenet, coco")) == [2, 0, 0]
    assert raw(view, pod("p", "imagenet")) == [1, 1, 1]
    assert raw(view, pod("p", f"coco@{DIGESTS[1]}")) == [1, 0, 1]


def test_exact_takes_an_older_version_that_nobody_uses_for_a_usable_one() -> None:
    view = world(
        dataset("coco"),
        cache("n0", held("coco", DIGESTS[1])),
        cache("n1", held("coco", DIGESTS[1], inUse=True)),
        cache("n2", held("coco", DIGESTS[1], inUse=True), held("coco")),
    )
    assert raw(view, pod("p", "coco")) == [1, 0, 1]


def test_exact_does_not_count_what_is_on_its_way() -> None:
    view = world(dataset("coco"), cache("n0", held("coco", state="Caching")))
    assert raw(view, pod("p", "coco")) == [0, 0, 0]


def test_a_wish_that_cannot_be_understood_scores_0_everywhere() -> None:
    view = world(dataset("coco"), cache("n0", held("coco")))
    needs = view.needs(parse.pod(pod("p", "Coco!")))
    assert needs.pod.problem
    assert score(needs, view.columns(NODES), terms()).scores.tolist() == [0] * len(NODES)


def test_expected_wait_is_the_missing_bytes_at_the_slowest_rate() -> None:
    rates = {"source": 2_000_000, "network": 500_000, "disk": 1_000_000, "unpack": 0}
    view = world(
        dataset("coco", size=1_000_000),
        cache("n0", held("coco")),
        cache("n1", held("coco", state="Caching", bytesPresent=960_000), rates=rates),
        cache("n2", rates=rates),
    )
    assert raw(view, pod("p", "coco"), "expected-wait") == pytest.approx([0, 0.08, 2])
    found = score(view.needs(parse.pod(pod("p", "coco"))), view.columns(NODES[:3]), terms("expected-wait", spread=0))
    assert found.scores.tolist() == [10, 10, 0]


def test_a_namespace_s_own_dataset_comes_before_the_cluster_s() -> None:
    shared = {**held("coco"), "namespace": "_cluster"}
    view = world(dataset("coco", namespace="_cluster"), cache("n0", shared), cache("n1", held("coco")))
    assert raw(view, pod("p", "coco")) == [1, 0, 0]
    put(view, dataset("coco"))
    assert raw(view, pod("p", "coco")) == [0, 1, 0]


def test_a_pod_that_is_bound_counts_before_its_agent_has_seen_it() -> None:
    view = world(node("n0"), dataset("coco", size=800), cache("n0", free=1000), pod("first", "coco", on="n0"))
    needs = view.needs(parse.pod(pod("p", "coco")))
    assert never_holds(needs, view.columns(["n0"])) == {}  # one fetch serves both
    put(view, dataset("laion", size=800))
    other = view.needs(parse.pod(pod("p", "laion")))
    assert list(never_holds(other, view.columns(["n0"]))) == [0]
    view.drop("Pod", ("research", "first"))
    put(view, cache("n0", free=10**6))
    assert never_holds(other, view.columns(["n0"])) == {}


def test_nodes_that_come_and_go_are_found_by_names_that_were_asked_about_before() -> None:
    view = world(node("n0"))
    names = ("n0", "n1")

    def known() -> list[bool]:
        return [facts.known for facts in view.columns(names).nodes]

    assert known() == [True, False]
    put(view, node("n1"))
    assert known() == [True, True]
    view.drop("Node", ("", "n0"))
    assert known() == [False, True]
    put(view, node("n2"))  # in the place that n0 had
    assert known() == [False, True]
    view.pack()
    assert [facts.name for facts in view.columns(["n2", "n1", "n0"]).nodes] == ["n2", "n1", ""]


def test_a_dataset_s_size_that_comes_late_counts_for_pods_that_are_bound_already() -> None:
    view = world(node("n0"), cache("n0", free=40_000), pod("first", "coco", on="n0"), dataset("laion", size=800))
    needs = view.needs(parse.pod(pod("p", "laion")))
    assert never_holds(needs, view.columns(["n0"])) == {}
    put(view, dataset("coco", size=800))
    assert list(never_holds(needs, view.columns(["n0"]))) == [0]


def test_a_rail_that_the_pod_would_fill_is_better_than_one_it_would_break() -> None:
    view = world(
        *(devices(f"n{free}", *_devices(free)) for free in (1, 2)),
        devices("n0", *_devices(4)),
        pod("other", on="n1", devices={CLASSES[0]: 1}),
    )
    assert raw(view, pod("p", devices={CLASSES[0]: 2}), term="rail") == [0.5, 0, 1]
    assert raw(view, pod("p", devices={CLASSES[0]: 1}), term="rail") == [0.25, 0, 0.5]


def _devices(count: int) -> list[Object]:
    return [
        {
            "id": f"gpu{one}",
            "resource": CLASSES[0],
            "scores": {f"gpu{other}": 10 + one + other for other in range(count)},
        }
        for one in range(count)
    ]


@given(st.integers(0, 8), st.randoms(use_true_random=False))
def test_the_best_set_is_the_best_of_all_sets(count: int, random: Random) -> None:
    scores = {pair: random.choice([10, 20, 40, 150]) for pair in itertools.combinations(range(count), 2)}
    found = [
        Device(str(one), "c", 0, True, False, {str(b): score for (a, b), score in scores.items() if a == one})
        for one in range(count)
    ]
    best = best_scores(found)
    for size in range(2, 9):
        totals = [
            sum(scores[pair] for pair in itertools.combinations(chosen, 2))
            for chosen in itertools.combinations(range(count), size)
        ]
        assert best[size] == max(totals, default=0)


def test_a_pod_that_kubelet_would_refuse_is_not_sent_there_and_a_narrow_place_is_better_than_a_wide_one() -> None:
    def pair(*numa_nodes: int) -> list[Object]:
        return [{"id": f"gpu{i}", "resource": CLASSES[0], "numaNode": one} for i, one in enumerate(numa_nodes)]

    view = world(
        devices("n0", *pair(1, 1), policy="single-numa-node"),
        devices("n1", *pair(0, 1), policy="single-numa-node"),
        devices("n2", *pair(0, 1), policy="best-effort"),
    )
    asking = pod("p", devices={CLASSES[0]: 2})
    assert raw(view, asking, term="numa") == [1, 0, 0.5]
    refused = kubelet_refuses(view.needs(parse.pod(asking)), view.columns(NODES[:3]))
    assert refused.keys() == {1}
    assert refused[1].startswith("TopologyAffinityError: ")


def test_what_is_unknown_of_a_kubelet_refuses_nothing() -> None:
    view = world(
        devices("n0", {"id": "gpu0", "resource": CLASSES[0], "numaNode": 0}, policy="single-numa-node"),
        pod("other", on="n0", devices={CLASSES[0]: 1}),
    )
    needs = view.needs(parse.pod(pod("p", devices={CLASSES[0]: 1})))
    assert kubelet_refuses(needs, view.columns(["n0", "n1"])) == {}


def test_the_spread_relieves_a_busy_holder_and_only_then() -> None:
    users = [pod(f"u{number}", "coco", on="n0") for number in range(3)]
    view = world(dataset("coco"), cache("n0", held("coco")), cache("n1"), *users[:1])
    needs = view.needs(parse.pod(pod("p", "coco")))

    def scores() -> list[int]:
        return [int(one) for one in score(needs, view.columns(["n0", "n1"]), terms(spread=30)).scores]

    assert scores() == [10, 8]
    for user in users[1:]:
        put(view, user)
    assert scores() == [6, 8]


def test_a_term_that_fails_costs_only_itself() -> None:
    view = world(dataset("coco"), cache("n0", held("coco")))
    needs = view.needs(parse.pod(pod("p", "coco")))
    good, *_, last = terms()

    def fails(*_: object) -> Array:
        raise ZeroDivisionError

    broken = Term("broken", 1, last.applies, last.judge, fails, last.normalise)
    found = score(needs, view.columns(["n0", "n1"]), [good, broken])
    assert (found.scores.tolist(), list(found.failed)) == ([10, 0], ["broken"])


def test_data_outrank_all_other_terms_together() -> None:
    others = Settings().terms
    rest = others.rail.weight + others.numa.weight + others.links.weight
    assert others.dataset.weight / (others.dataset.weight + rest) - rest / (others.dataset.weight + rest) >= 0.2
