"""Whatever the scheduler plugin is sent, it answers, and only what kube-scheduler's protocol allows."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings

from scheduler_plugin.app import make_app
from scheduler_plugin.protocol import MOST_BYTES
from scheduler_plugin.state import State
from tests.unit.scheduler.worlds import CLASSES, Object, cache, dataset, devices, held, node, pod, world

NAMES = ["n0", "n1", "n2"]
PARTS = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
TEXT = {"type": "string"}
MAYBE_TEXTS = {"type": ["object", "null"], "additionalProperties": {"type": "string", "enum": ["1", "2Gi", "x", ""]}}
CONTAINERS = {
    "type": ["array", "null"],
    "items": {
        "type": "object",
        "properties": {"name": TEXT, "resources": {"type": "object", "properties": {"limits": MAYBE_TEXTS}}},
    },
}
ANNOTATIONS = {
    "type": ["object", "null"],
    "properties": {"dsagent.io/datasets": {"type": "string"}, "dsagent.io/mode": TEXT, "dsagent.io/on-failure": TEXT},
}
METADATA = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": TEXT, "namespace": TEXT, "uid": TEXT, "annotations": ANNOTATIONS},
}
POD = {
    "type": "object",
    "required": ["metadata"],
    "properties": {
        "metadata": METADATA,
        "spec": {
            "type": "object",
            "properties": {"nodeName": TEXT, "containers": CONTAINERS, "initContainers": CONTAINERS},
        },
    },
}
ITEMS = {"type": "array", "items": {"type": "object", "required": ["metadata"], "properties": {"metadata": METADATA}}}
EXTENDER_ARGS = {
    "type": "object",
    "required": ["Pod"],
    "properties": {
        "Pod": POD,
        "Nodes": {"type": ["object", "null"], "properties": {"items": ITEMS}},
        "NodeNames": {"type": ["array", "null"], "items": {"anyOf": [{"enum": NAMES}, TEXT]}},
    },
}


def make_state() -> State:
    gpu = {"id": "gpu0", "resource": CLASSES[0], "numaNode": 0, "scores": {"gpu0": 10}}
    caches = cache("n0", held("coco")), cache("n2", free=1000)
    gpus = devices("n0", gpu, policy="single-numa-node")
    return State(world(*map(node, NAMES), dataset("coco"), *caches, gpus, pod("bound", "coco", on="n0")))


def document() -> Any:
    """The app's own, with what it reads by itself."""
    described = make_app(make_state()).openapi()
    for verb in ("filter", "prioritize"):
        content = {"application/json": {"schema": EXTENDER_ARGS}}
        described["paths"][f"/{verb}"]["post"]["requestBody"] = {"required": True, "content": content}
    return described


schema = schemathesis.openapi.from_dict(document())


class Answer(NamedTuple):
    status: int
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class Client:
    """Asks the app as its server would, a body in two parts."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def get(self, path: str, **query: object) -> Answer:
        return asyncio.run(self._ask("GET", path, urlencode(query, doseq=True), b""))

    def post(self, path: str, content: bytes) -> Answer:
        return asyncio.run(self._ask("POST", path, "", content))

    async def _ask(self, method: str, path: str, query: str, content: bytes) -> Answer:
        half = len(content) // 2
        parts = [(content[:half], True), (content[half:], False)]
        sent: list[Any] = []

        async def receive() -> Any:
            part, more = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": more}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "headers": []}
        await self._app({**scope, "query_string": query.encode()}, receive, send)
        return Answer(sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]))


@pytest.fixture(scope="module")
def client() -> Client:
    return Client(make_app(make_state()))


def body(asking: object, names: object = None, **more: object) -> bytes:
    return json.dumps({"Pod": asking, "Nodes": None, "NodeNames": NAMES if names is None else names, **more}).encode()


def names_in(sent: object) -> list[str]:
    """The nodes that a request is about, as far as it is one."""
    if not isinstance(sent, dict):
        return []
    if isinstance(names := sent.get("NodeNames"), list):
        return names
    nodes = sent.get("Nodes")
    items = nodes.get("items") if isinstance(nodes, dict) else None
    return [one["metadata"]["name"] for one in items or ()]


def check_filtered(answer: Answer, sent: object) -> dict[str, Any]:
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    assert found.keys() == PARTS
    assert isinstance(found["Error"], str)
    if found["Error"]:
        assert (found["NodeNames"], found["Nodes"]) == (None, None)
        return found
    asked = names_in(sent)
    kept = found["NodeNames"]
    if kept is None:
        kept = [one["metadata"]["name"] for one in found["Nodes"]["items"]]
    refused = found["FailedAndUnresolvableNodes"]
    assert all(isinstance(why, str) and why for why in refused.values())
    assert kept == [name for name in asked if name not in refused]
    assert refused.keys() <= set(asked)
    return found


def check_prioritized(answer: Answer, sent: object) -> dict[str, int]:
    assert answer.status == 200
    found = answer.json()
    assert all(one.keys() == {"Host", "Score"} for one in found)
    assert all(type(one["Score"]) is int and 0 <= one["Score"] <= 10 for one in found)
    if found:
        assert [one["Host"] for one in found] == names_in(sent)
    return {one["Host"]: one["Score"] for one in found}


CHECKS: dict[str, Callable[[Answer, object], object]] = {"/filter": check_filtered, "/prioritize": check_prioritized}


def ask_both(client: Client, content: bytes) -> tuple[dict[str, Any], dict[str, int]]:
    """Both verbs' answers to one body, each as the protocol allows; then a good request, which is answered well."""
    try:
        sent = json.loads(content)
    except (ValueError, RecursionError):
        sent = None
    filtered = check_filtered(client.post("/filter", content), sent)
    prioritized = check_prioritized(client.post("/prioritize", content), sent)
    good = body(pod("good", "coco"))
    assert check_filtered(client.post("/filter", good), json.loads(good))["NodeNames"] == ["n0", "n1"]
    assert check_prioritized(client.post("/prioritize", good), json.loads(good))["n0"] == 10
    return filtered, prioritized


@schema.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_every_answer_is_one_that_the_protocol_has(case: schemathesis.Case[Any], client: Client) -> None:
    if case.path not in CHECKS:
        answer = client.get(case.path, **case.query or {})
        assert answer.status in {200, 404, 422, 503}, answer.content
    elif case.method == "POST":
        sent = case.body if isinstance(case.body, dict | list | str | int | float | bool | None) else None
        written = json.dumps(sent)
        answer = client.post(case.path, written.encode())
        try:
            CHECKS[case.path](answer, json.loads(written))
        except (TypeError, KeyError):
            assert answer.json() == [] or answer.json()["Error"]  # what was sent names no nodes


def many_containers(count: int) -> Object:
    found = dict(pod("p", "coco"))
    one = {"name": "c", "resources": {"limits": {"cpu": "1", CLASSES[0]: "1"}}}
    found["spec"] = {"containers": [one] * count}
    return found


def asking_for(amount: object, what: str = CLASSES[0]) -> Object:
    found = dict(pod("p", "coco"))
    found["spec"] = {"containers": [{"name": "c", "resources": {"limits": {what: amount}}}]}
    return found


NESTED = b'{"a":' * 400 + b"1" + b"}" * 400
HAND_MADE: dict[str, bytes] = {
    "nothing": b"",
    "a word": b"null",
    "an object": b"{}",
    "no pod": b'{"Pod":null,"NodeNames":["n0"]}',
    "an empty pod": b'{"Pod":{},"NodeNames":["n0"]}',
    "no nodes": body(pod("p", "coco"), []),
    "neither names nor nodes": b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":null,"Nodes":null}',
    "names that are numbers": body(pod("p", "coco"), [1, 2]),
    "names that are lists": body(pod("p", "coco"), [["n0"]]),
    "names that are one text": body(pod("p", "coco"), "n0"),
    "names that are an object": body(pod("p", "coco"), {"n0": 1}),
    "nodes that are none": b'{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":[1,null,"x"]}}',
    "items that are a text": b'{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":"n0"}}',
    "nodes nested deeply": b'{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":[{"metadata":{"name":"n0"},"spec":'
    + NESTED
    + b"}]}}",
    "nested too deeply": b"[" * 100_000,
    "names twice": body(pod("p", "coco"), ["n0", "n0", "n2", "n2"]),
    "names with everything in them": body(pod("p", "coco"), ["", "\x00", '","', '"', "\\", "é", "n0\n", "😀", "n0"]),
    "names of nobody": body(pod("p", "coco"), ["x", "y"]),
    "a lone surrogate": b'{"Pod":{"metadata":{"name":"\\ud800"}},"NodeNames":["\\udfff"]}',
    "no UTF-8": b'{"Pod":{"metadata":{"name":"\xff"}},"NodeNames":["n0"]}',
    "no pod's name": body({"metadata": {"name": ""}}),
    "annotations that are a list": body({"metadata": {"name": "p", "annotations": ["dsagent.io/datasets"]}}),
    "an annotation that is a number": body({"metadata": {"name": "p", "annotations": {"dsagent.io/datasets": 7}}}),
    "very many datasets": body(pod("p", ", ".join(f"d{number}" for number in range(10_000)))),
    "a very long annotation": body(pod("p", "x" * 1_000_000)),
    "very many containers": body(many_containers(10_000)),
    "very many GPUs": body(asking_for("9" * 28)),
    "a negative number of GPUs": body(asking_for("-3")),
    "half a GPU": body(asking_for("500m")),
    "no GPU": body(asking_for("0")),
    "more than a number": body(asking_for("1e400")),
    "a GPU that is true": body(asking_for(True)),
    "memory without end": body(asking_for("9" * 28 + "Ei", "memory")),
    "a number that is larger than 64 bits": b'{"Pod":' + b"9" * 400 + b',"NodeNames":["n0"]}',
    "the same key twice": b'{"Pod":1,"Pod":{"metadata":{"name":"p"}},"NodeNames":["n0"],"NodeNames":["n1"]}',
}


@pytest.mark.parametrize("content", HAND_MADE.values(), ids=HAND_MADE)
def test_what_is_hardly_a_request_is_answered(client: Client, content: bytes) -> None:
    ask_both(client, content)


def test_ten_thousand_names_are_answered_in_their_order(client: Client) -> None:
    names = [f"other-{number}" for number in range(10_000)]
    filtered, prioritized = ask_both(client, body(pod("p", "coco"), [*names, "n2", "n0"]))
    assert filtered["NodeNames"] == [*names, "n0"]
    assert (prioritized["n0"], len(prioritized), sum(prioritized.values())) == (10, 10_002, 10)


def test_a_request_that_is_too_long_is_read_to_its_end_and_is_an_error(client: Client) -> None:
    filtered, prioritized = ask_both(client, b'{"Pod":"' + b"x" * MOST_BYTES + b'"}')
    assert filtered["Error"]
    assert prioritized == {}


@pytest.mark.parametrize("name", ["", "p", "bound", "é\x00", "../..", "x" * 5000])
def test_explain_answers_whoever_is_asked_about(client: Client, name: str) -> None:
    for asking in (asking_for("9" * 28), asking_for("-3"), pod("p", "coco, nobody-has-it")):
        client.post("/prioritize", body(asking))
        for all_nodes in ("false", "true"):
            answer = client.get("/explain", namespace="research", pod=name, all_nodes=all_nodes)
            assert answer.status in {200, 404}
            assert ("problem" in answer.json()) == (answer.status == 404)


def test_what_nobody_has_leaves_nothing_behind() -> None:
    state = make_state()
    client = Client(make_app(state))
    for number in range(20):
        ask_both(client, body(pod("p", ", ".join(f"n{number}-{one}" for one in range(64)))))
    assert len(state.view._arrays._held) < 10
    assert len(state.view._arrays._users) < 10
