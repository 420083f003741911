"""An agent's answers as results again: the inverse of what it does to write them."""

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

from dsagent.core.errors import AgentUnreachable

T = TypeVar("T")


def result(kind: type[T], document: Any) -> T:
    """A dataclass from its document; fields that it does not know are left out. Raises AgentUnreachable."""
    try:
        return _object(kind, document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"it is no {kind.__name__} ({type(error).__name__}: {error})"
        hint = "use dsctl and agent of one release"
        raise AgentUnreachable("understand", "what the agent answered", cause, hint) from error


def results(kind: type[T], documents: Any) -> list[T]:
    """A list of them."""
    return [result(kind, document) for document in documents]


def _object(kind: type[T], document: Mapping[str, Any]) -> T:
    found = {}
    for field in fields(kind):  # type: ignore[arg-type]
        raw = document.get(f"{field.name}_b64")
        found[field.name] = _value(field.type, document[field.name] if raw is None else _decoded(raw))
    return kind(**found)


def _decoded(raw: str | Sequence[str]) -> Any:
    return base64.b64decode(raw) if isinstance(raw, str) else [base64.b64decode(one) for one in raw]


def _value(kind: Any, value: Any) -> Any:  # noqa: PLR0911 - one kind, one line
    if isinstance(kind, UnionType):
        if value is None and NoneType in get_args(kind):
            return None
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is Sequence:
        return [_value(get_args(kind)[0], one) for one in value]
    if is_dataclass(kind):
        return _object(kind, value)  # type: ignore[arg-type]
    if kind is datetime:
        return datetime.fromisoformat(value)
    if kind is bytes:
        return value if isinstance(value, bytes) else value.encode()
    if kind is float:
        return float(value)
    return os.fsdecode(value) if isinstance(value, bytes) else value
