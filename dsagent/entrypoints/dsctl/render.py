"""Results as text: JSON, YAML, names, or tables and sentences for people."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from dsagent.core.errors import show_path
from dsagent.core.quantities import human_duration
from dsagent.entrypoints.documents import as_document


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
