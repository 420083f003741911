"""Results as JSON has them, on the command line and over HTTP."""

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any


def as_document(value: object) -> Any:
    """A result as JSON has it. Names that are not UTF-8 become text with escapes, and `…_b64` has their bytes."""
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    match value:
        case Mapping():
            return _as_object(value)
        case datetime():
            return rfc3339(value)
        case bytes() | str():
            return os.fsencode(value).decode("utf-8", "backslashreplace")
        case Sequence():
            return [as_document(item) for item in value]
    return value


def _as_object(parts: Mapping[str, object]) -> dict[str, Any]:
    document = {}
    for name, value in parts.items():
        document[name] = as_document(value)
        if (raw := _raw(value)) is not None:
            document[f"{name}_b64"] = raw
    return document


def _raw(value: object) -> str | list[str] | None:
    """Base64 of a name that is not UTF-8, or of all names of a list in which one is not; None otherwise."""
    if isinstance(value, str):
        value = os.fsencode(value)
    if isinstance(value, bytes):
        return None if _is_utf8(value) else base64.b64encode(value).decode()
    if isinstance(value, list | tuple) and any(isinstance(v, bytes) and not _is_utf8(v) for v in value):
        return [base64.b64encode(v).decode() for v in value]
    return None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def rfc3339(time: datetime) -> str:
    """A time in UTC, to the microsecond."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
