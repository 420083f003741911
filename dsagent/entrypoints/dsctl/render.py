"""Results as text: JSON, YAML, names, or tables and sentences for people."""

import base64
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from dsagent.core.errors import show_path
from dsagent.core.quantities import human_duration


class Output(StrEnum):
    """How a result is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class View(NamedTuple):
    """A result in its forms: the document for programs, its names, and the lines for people (given: whether wide)."""

    document: object
    lines: Callable[[bool], Iterable[str]]
    names: Sequence[str] = ()


def say(line: str) -> None:
    """Writes a line to standard error; nobody has to read it."""
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def as_json_line(value: object) -> str:
    """A value's document in one line."""
    import orjson  # noqa: PLC0415 - only this form needs it

    return orjson.dumps(as_document(value)).decode()


def write(view: View, output: Output) -> None:
    """Writes a result to standard output; a reader that has gone away is no failure. Raises OSError."""
    text = _text(view, output)
    try:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())


def _text(view: View, output: Output) -> bytes:
    match output:
        case Output.JSON:
            import orjson  # noqa: PLC0415 - only this form needs it

            return orjson.dumps(as_document(view.document), option=orjson.OPT_INDENT_2) + b"\n"
        case Output.YAML:
            import yaml  # noqa: PLC0415 - slow to import

            return bytes(
                yaml.safe_dump(as_document(view.document), sort_keys=False, allow_unicode=True, encoding="utf-8")
            )
        case Output.NAME:
            lines: Iterable[str] = view.names
        case _:
            lines = view.lines(output is Output.WIDE)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


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


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell."""
    cells = [headers, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def pairs(items: Mapping[str, str]) -> list[str]:
    """One `name: value` a line, values below each other."""
    width = max(map(len, items), default=0) + 1
    return [f"{f'{name}:'.ljust(width)} {printable(value)}" for name, value in items.items()]


def printable(text: str) -> str:
    """Text that moves no cursor: control characters and bytes that are not UTF-8 become escapes."""
    return show_path(os.fsencode(text))


def ago(time: datetime, now: datetime) -> str:
    """How long ago, for people."""
    return f"{human_duration(max(1.0, (now - time).total_seconds()))} ago"


def short(version: str) -> str:
    """A version as far as people need it to tell two apart."""
    return version[: len("xxh3:") + 12]
