"""What goes over the wire: kube-scheduler's bodies in, and only what its protocol allows out, whatever comes."""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin import protocol
from scheduler_plugin.app import filter_nodes, prioritize_nodes
from scheduler_plugin.facts import Needs, NodeFacts
from scheduler_plugin.state import State
from scheduler_plugin.terms import Term
from tests.unit.scheduler.worlds import Object, cache, dataset, held, node, pod, world

NAMES = ["n0", "n1", "n2"]
FULL = cache("n2", free=1000)
FUZZED = State(world(*map(node, NAMES), dataset("coco"), cache("n0", held("coco")), FULL))
PARTS = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}


@pytest.fixture
def state() -> State:
    return State(world(*map(node, NAMES), dataset("coco"), cache("n0", held("coco")), cache("n1"), FULL))


def body(asking: Object, names: list[str] | None = None, **more: Any) -> bytes:
    """As kube-scheduler's Go encodes extenderv1.ExtenderArgs, which has no JSON tags."""
    return json.dumps({"Pod": asking, "Nodes": None, "NodeNames": NAMES if names is None else names, **more}).encode()


def filtered(state: State, asked: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(filter_nodes(state, asked))
    assert answer.keys() == PARTS
    return answer


def prioritized(state: State, asked: bytes) -> dict[str, int]:
    answer = json.loads(prioritize_nodes(state, asked))
    assert all(one.keys() == {"Host", "Score"} and type(one["Score"]) is int for one in answer)
    assert all(0 <= one["Score"] <= 10 for one in answer)
    return {one["Host"]: one["Score"] for one in answer}


def test_filter_names_what_remains_and_says_why_the_rest_does_not(state: State) -> None:
    answer = filtered(state, body(pod("p", "coco")))
    assert (answer["Nodes"], answer["NodeNames"], answer["FailedNodes"], answer["Error"]) == (
        None,
        ["n0", "n1"],
        {},
        "",
    )
    why = answer["FailedAndUnresolvableNodes"]
    assert why.keys() == {"n2"}
    assert "needs 1,200,000 bytes" in why["n2"]
    assert "1,000 can be had" in why["n2"]


def test_prioritize_scores_each_node_that_was_asked_about(state: State) -> None:
    assert prioritized(state, body(pod("p", "coco"))) == {"n0": 10, "n1": 0, "n2": 0}


def test_without_node_cache_it_is_sent_nodes_and_sends_nodes_back(state: State) -> None:
    items = [node(name) for name in NAMES]
    asked = json.dumps({"Pod": pod("p", "coco"), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}).encode()
    answer = filtered(state, asked)
    assert (answer["NodeNames"], answer["Nodes"]) == (None, {"items": items[:2]})
    assert prioritized(state, asked) == {"n0": 10, "n1": 0, "n2": 0}


@pytest.mark.parametrize(
    ("asking", "scores"),
    [
        pytest.param(pod("p"), {"n0": 0, "n1": 0, "n2": 0}, id="no annotation"),
        pytest.param(pod("p", "Not a name"), {"n0": 0, "n1": 0, "n2": 0}, id="annotation that is none"),
        pytest.param(pod("p", "unknown"), {"n0": 0, "n1": 0, "n2": 0}, id="dataset that nobody knows"),
        pytest.param(pod("p", "coco", mode="local"), {"n0": 0, "n1": 0, "n2": 0}, id="reads the source"),
        pytest.param(pod("p", "coco, unknown"), {"n0": 0, "n1": 0, "n2": 0}, id="a part is nothing"),
    ],
)
def test_pods(state: State, asking: Object, scores: dict[str, int]) -> None:
    assert prioritized(state, body(asking)) == scores


def test_a_pod_that_can_read_its_source_is_not_refused_for_want_of_room(state: State) -> None:
    assert filtered(state, body(pod("p", "coco", on_failure="source")))["NodeNames"] == NAMES


def test_unknown_nodes_and_none_and_very_many_are_answered(state: State) -> None:
    many = [f"other-{number}" for number in range(10_000)]
    assert filtered(state, body(pod("p", "coco"), many))["NodeNames"] == many
    assert prioritized(state, body(pod("p", "coco"), ["n0", *many])) == {"n0": 10, **dict.fromkeys(many, 0)}
    assert filtered(state, body(pod("p", "coco"), []))["NodeNames"] == []
    assert prioritize_nodes(state, body(pod("p", "coco"), [])) == b"[]"


def test_before_the_view_is_whole_nothing_is_refused(state: State) -> None:
    state.unsynced = lambda: ["Pod"]
    assert filtered(state, body(pod("p", "coco")))["NodeNames"] == NAMES


def test_a_term_that_fails_costs_only_itself_and_is_counted(state: State) -> None:
    good = state.terms[0]

    def fails(needs: Needs, facts: object) -> Any:
        raise RuntimeError(needs, facts)

    def judge(needs: Needs, facts: NodeFacts) -> Any:
        return fails(needs, facts)

    state.terms = (good, Term("broken", 1, good.applies, judge, fails, good.normalise))
    assert prioritized(state, body(pod("p", "coco"))) == {"n0": 10, "n1": 0, "n2": 0}
    assert b'dsagent_scheduler_failures_total{part="broken",verb="prioritize"} 1.0' in state.metrics.text({})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _replaced(document: Any, change: Callable[[int], Any], count: list[int]) -> Any:
    """The document with something else in place of one of its values, the `count`th."""
    count[0] -= 1
    if count[0] == 0:
        return change(0)
    if isinstance(document, dict):
        return {key: _replaced(value, change, count) for key, value in document.items()}
    if isinstance(document, list):
        return [_replaced(value, change, count) for value in document]
    return document


@given(JSON, st.integers(1, 40))
def test_a_body_with_something_else_in_it_is_answered_as_the_protocol_says(other: Any, place: int) -> None:
    asking = pod("p", "coco", devices={"dsagent.io/gpu-roce1": 1})
    document = {"Pod": asking, "Nodes": None, "NodeNames": NAMES}
    asked = json.dumps(_replaced(document, lambda _: other, [place])).encode()
    answer = filtered(FUZZED, asked)
    if not answer["Error"] and answer["NodeNames"] is not None:
        names = json.loads(asked)["NodeNames"]
        assert set(answer["NodeNames"]) | answer["FailedAndUnresolvableNodes"].keys() == set(names)
    prioritized(FUZZED, asked)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_request_are_an_error_in_the_protocol_s_own_form(noise: bytes) -> None:
    assert filtered(FUZZED, noise)["Error"]
    assert prioritize_nodes(FUZZED, noise) == b"[]"


@pytest.mark.parametrize("amount", ["1e999999999", "NaN", "Infinity", "-", "", "1Zi", [], {}, None])
def test_a_quantity_that_is_none_does_not_hang_and_is_an_error(state: State, amount: object) -> None:
    asking = dict(pod("p", "coco"))
    asking["spec"] = {"containers": [{"name": "main", "resources": {"limits": {"cpu": amount}}}]}
    assert filtered(state, body(asking))["Error"]


def test_deeply_nested_bodies_are_refused(state: State) -> None:
    assert filtered(state, b"[" * 100_000 + b"]" * 100_000)["Error"]


def test_what_it_says_is_json_of_the_right_types() -> None:
    names = ["", '","', "\\", '"', "\x00", "é", "n2"]
    scores = [0, 1, 2, 10, 4, 5, 6]
    written = orjson.loads(protocol.prioritized(orjson.dumps(names), scores))
    assert written == [{"Host": name, "Score": score} for name, score in zip(names, scores, strict=True)]


POD = b'"Pod":{"metadata":{"name":"p"}}'


@pytest.mark.parametrize(
    "document",
    [
        b"{" + POD + b',"NodeNames":["a","b"]}',
        b'{"NodeNames":["a","b"],' + POD + b"}",
        b'{"Pod":{"metadata":{"name":"other"}},"NodeNames":["a","b"],' + POD + b"}",
        b'{"Pod":{"metadata":{"name":"p"},"NodeNames":["x"]},"NodeNames":["a","b"]}',
        b'{"NodeNames": ["a","b"],"Pod":{"metadata":{"name":"p"},"NodeNames":["x"]}}',
        b"{" + POD + b',"NodeNames":["x"],"NodeNames" : ["a","b"]}',
        b'{"Pod":{"metadata":{"name":"p","uid":"\\"NodeNames\\":["}},"NodeNames":["a","b"]} \n',
    ],
)
def test_names_are_read_from_wherever_they_are_and_are_known_again(document: bytes) -> None:
    reader = protocol.Reader()
    for _ in range(2):
        asked = reader.read(document)
        assert (asked.pod.name, list(asked.names), asked.items) == ("p", ["a", "b"], None)
    assert list(reader.read(body(pod("q"), ["a", "c"])).names) == ["a", "c"]


@pytest.mark.parametrize("end", ["", "]", "}}", ',"x"}', ',"x":}'])
def test_names_that_are_known_do_not_make_a_request_of_what_is_none(end: str) -> None:
    reader = protocol.Reader()
    good = b"{" + POD + b',"NodeNames":["a"]}'
    reader.read(good)
    for bad in (good[:-1] + end.encode(), good[1:], b"[" + good, b'{"x":' + good):
        with pytest.raises(protocol.BadRequest):
            reader.read(bad)
