"""What kube-scheduler says and wants to hear: k8s.io/kube-scheduler/extender/v1, with the Go fields' names as keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from scheduler_plugin import parse
from scheduler_plugin.facts import PodFacts

MOST_BYTES = 64 << 20  # of a request: 5,000 whole Node objects have about 50 MB


class BadRequest(ValueError):
    """A request that is not one of kube-scheduler's."""


@dataclass(frozen=True)
class Asked:
    """ExtenderArgs: a pod and the nodes in question. `items`: the Node objects, if it sent these and not names."""

    pod: PodFacts
    names: Sequence[str]
    items: Sequence[Any] | None


def read(body: bytes) -> Asked:
    """A request's body; raises BadRequest."""
    try:
        document = orjson.loads(body)
        pod = parse.pod(document["Pod"])
        names, items = document.get("NodeNames"), None
        if names is None:
            items = (document.get("Nodes") or {}).get("items") or []
            names = [parse.names_of(item)[1] for item in items]
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is no JSON: {error}") from error
    except parse.NOT_AN_OBJECT as error:
        raise BadRequest(f"the body is no ExtenderArgs: {error!r}") from error
    if not isinstance(names, list) or not set(map(type, names)) <= {str}:
        raise BadRequest("NodeNames is no list of names")
    return Asked(pod, names, items)


def filtered(asked: Asked, unresolvable: Mapping[int, str]) -> bytes:
    """ExtenderFilterResult: the nodes that remain, in the form that was asked in, and why others do not."""
    rest: dict[str, Any] = {"Nodes": None, "NodeNames": None}
    if asked.items is None:
        kept = (
            [name for place, name in enumerate(asked.names) if place not in unresolvable]
            if unresolvable
            else asked.names
        )
        rest["NodeNames"] = kept
    else:
        rest["Nodes"] = {"items": [item for place, item in enumerate(asked.items) if place not in unresolvable]}
    reasons = {asked.names[place]: reason for place, reason in unresolvable.items()}
    return orjson.dumps({**rest, "FailedNodes": {}, "FailedAndUnresolvableNodes": reasons, "Error": ""})


def filter_error(text: str) -> bytes:
    """An ExtenderFilterResult that says that there is none; kube-scheduler goes on without us if it may."""
    nothing: dict[str, Any] = {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
    return orjson.dumps({**nothing, "Error": text})


def prioritized(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """HostPriorityList."""
    return orjson.dumps([{"Host": name, "Score": score} for name, score in zip(names, scores, strict=True)])
