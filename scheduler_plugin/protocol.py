"""What kube-scheduler says and wants to hear: k8s.io/kube-scheduler/extender/v1, with the Go fields' names as keys."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from scheduler_plugin import parse
from scheduler_plugin.facts import PodFacts
from scheduler_plugin.scoring import GREATEST

MOST_BYTES = 64 << 20  # of a request: 5,000 whole Node objects have about 50 MB


RECENT = 4  # lists of names that are remembered
_NAMES, _NO_NAMES = b'"NodeNames":[', b'"NodeNames":null}'
_ENDS = tuple(b'","Score":%d}]' % score for score in range(GREATEST + 1))
_BETWEEN = tuple(b'","Score":%d},{"Host":"' % score for score in range(GREATEST + 1))


class BadRequest(ValueError):
    """A request that is not one of kube-scheduler's."""


@dataclass(frozen=True)
class Asked:
    """ExtenderArgs: a pod and the nodes in question, `written` as a JSON array by orjson. `items`: the Node objects, if
    it sent these and not names.
    """

    pod: PodFacts
    names: Sequence[str]
    written: bytes
    items: Sequence[Any] | None = None


class Reader:
    """Reads requests. kube-scheduler asks both verbs about the same nodes, and its JSON ends with them: names that have
    come lately are known again by their bytes, and are the same object.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[bytes, tuple[str, ...], bytes]] = deque(maxlen=RECENT)

    def read(self, body: bytes) -> Asked:
        """A request's body; raises BadRequest."""
        try:
            if (at := body.rfind(_NAMES)) >= 0 and (asked := self._read_apart(body[:at], body[at:])):
                return asked
            return _read_whole(body)
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"the body is no JSON: {error}") from error
        except parse.NOT_AN_OBJECT as error:
            raise BadRequest(f"the body is no ExtenderArgs: {error!r}") from error

    def _read_apart(self, rest: bytes, end: bytes) -> Asked | None:
        """The same from what is before the names and from there on; None unless both are JSON by themselves, for then
        the names are not a part of something else.
        """
        try:
            document = orjson.loads(rest + _NO_NAMES)
            found = next((found for found in self._recent if found[0] == end), None)
            if found is None:
                last = orjson.loads(b"{" + end)
                if last.keys() != {"NodeNames"}:
                    return None
                names = _checked(last["NodeNames"])
                found = (end, names, _written(names))
                self._recent.append(found)
        except orjson.JSONDecodeError:
            return None
        return Asked(parse.pod(document["Pod"]), *found[1:])


def _read_whole(body: bytes) -> Asked:
    document = orjson.loads(body)
    pod = parse.pod(document["Pod"])
    names = document.get("NodeNames")
    items = None
    if names is None:
        items = (document.get("Nodes") or {}).get("items") or []
        names = [parse.names_of(item)[1] for item in items]
    names = _checked(names)
    return Asked(pod, names, _written(names), items)


def _written(names: tuple[str, ...]) -> bytes:
    return bytes(memoryview(orjson.dumps(names)))  # orjson's own has a buffer of ten times the size behind it


def _checked(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not set(map(type, names)) <= {str}:
        raise BadRequest("NodeNames is no list of names")
    return tuple(names)


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


def prioritized(written: bytes, scores: Sequence[int]) -> bytes:
    """HostPriorityList of names, as Asked.written has them, from 0 to 10 each. An object for each of 5,000 takes longer
    than the decision.
    """
    if not scores:
        return b"[]"
    parts: list[bytes] = [b""] * (2 * len(scores))
    parts[::2] = written[2:-2].split(b'","')  # nowhere inside a JSON string, where each " follows a backslash
    parts[1::2] = map(_BETWEEN.__getitem__, scores)
    parts[-1] = _ENDS[scores[-1]]
    return b'[{"Host":"' + b"".join(parts)
