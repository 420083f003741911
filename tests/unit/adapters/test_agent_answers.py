"""What an agent writes, read again."""

import dataclasses
import inspect
from collections.abc import Sequence
from datetime import UTC, datetime
from types import UnionType
from typing import Any, Union, get_args, get_origin

import orjson
import pytest

from dsagent.adapters.agent_answers import result
from dsagent.core import tasks
from dsagent.core.errors import AgentUnreachable
from dsagent.core.eviction import Evicted
from dsagent.core.problem import Problem
from dsagent.entrypoints.documents import as_document
from dsagent.service import results

KINDS = [
    kind
    for module in (results, tasks)
    for _, kind in inspect.getmembers(module, dataclasses.is_dataclass)
    if isinstance(kind, type)
] + [Problem]


def sample(kind: Any, full: bool) -> Any:
    """A value of that type, with names that are not UTF-8."""
    if dataclasses.is_dataclass(kind):
        return kind(**{field.name: sample(field.type, full) for field in dataclasses.fields(kind)})  # type: ignore[operator]
    if get_origin(kind) in (Union, UnionType):
        return sample(get_args(kind)[0], full) if full else None
    if get_origin(kind) is Sequence:
        (inner,) = get_args(kind)
        return ["text" if inner is str else sample(inner, full)] * 2 if full else []
    if kind is datetime:
        return datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    if kind in (str, bytes):
        return {str: "/data/\udcff\n", bytes: b"/data/\xff\n"}[kind]
    return {int: 7, float: 0.5, bool: True}[kind] if kind in (int, float, bool) else get_args(kind)[0]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_result_survives_its_document(kind: Any, full: bool) -> None:
    value = sample(kind, full)
    assert result(kind, orjson.loads(orjson.dumps(as_document(value)))) == value


def test_a_newer_agent_may_say_more_and_an_older_one_less() -> None:
    value = Evicted("imgs", "xxh3:0", 7)
    document = as_document(value)
    assert result(Evicted, {**document, "colour": "blue"}) == value
    del document["bytes"]
    bad: Any
    for bad in (document, None, [], "text", {**as_document(sample(results.CachedInfo, True)), "published": "soon"}):
        with pytest.raises(AgentUnreachable, match="one release"):
            result(results.CachedInfo, bad)
