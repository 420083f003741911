"""The agent's answers, as far as the client needs them. A field that it does not know is no error."""

import json
from typing import Any, NamedTuple

from dsagent.contract import ExitCode

_STATES = ("pending", "running", "ready", "failed")


class Problem(NamedTuple):
    """Why something failed, or what it waits for."""

    detail: str
    exit_code: int


class Part(NamedTuple):
    """One dataset of the task; see dsagent.core.tasks.DatasetInfo."""

    name: str
    state: str
    version: str | None
    path: str | None
    error: Problem | None
    outcome: str | None
    bytes_total: int
    bytes_done: int
    files_total: int
    files_done: int
    rate: float
    eta_seconds: float | None
    files: int
    bytes: int
    fetched_bytes: int
    reused_files: int
    skipped_special: int
    evicted: int
    seconds: float


class Task(NamedTuple):
    """The task: all datasets of the pod, by name."""

    state: str
    datasets: dict[str, Part]


def read_task(data: bytes) -> Task:
    """A TaskInfo; raises ValueError for anything else."""
    document = _document(data)
    parts = [_part(_object(one)) for one in _list(document.get("datasets"))]
    return Task(_state(document), {part.name: part for part in parts})


def read_problem(data: bytes) -> Problem | None:
    """An RFC 9457 problem, or None if it is something else."""
    try:
        return _problem(_document(data))
    except ValueError:
        return None


def one_line(text: str) -> str:
    """Text from elsewhere, without what would break a line of the log."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _document(data: bytes) -> dict[str, Any]:
    try:
        return _object(json.loads(data))
    except RecursionError:
        raise ValueError("it has no end") from None


def _part(document: dict[str, Any]) -> Part:
    error = document.get("error")
    return Part(
        name=_text(document, "name") or "",
        state=_state(document),
        version=_text(document, "version"),
        path=_text(document, "path"),
        error=None if error is None else _problem(_object(error)),
        outcome=_text(document, "outcome"),
        bytes_total=int(_number(document, "bytes_total")),
        bytes_done=int(_number(document, "bytes_done")),
        files_total=int(_number(document, "files_total")),
        files_done=int(_number(document, "files_done")),
        rate=_number(document, "rate"),
        eta_seconds=None if document.get("eta_seconds") is None else _number(document, "eta_seconds"),
        files=int(_number(document, "files")),
        bytes=int(_number(document, "bytes")),
        fetched_bytes=int(_number(document, "fetched_bytes")),
        reused_files=int(_number(document, "reused_files")),
        skipped_special=int(_number(document, "skipped_special")),
        evicted=len(_list(document.get("evicted") or [])),
        seconds=_number(document, "seconds"),
    )


def _problem(document: dict[str, Any]) -> Problem:
    detail = _text(document, "detail") or _text(document, "title")
    if detail is None:
        raise ValueError("neither detail nor title")
    code = document.get("exit_code")
    return Problem(one_line(detail), code if isinstance(code, int) and 0 < code < 256 else int(ExitCode.FAILURE))


def _state(document: dict[str, Any]) -> str:
    state = document.get("state")
    if state not in _STATES:
        raise ValueError(f"the state {state!r}")
    return str(state)


def _text(document: dict[str, Any], field: str) -> str | None:
    value = document.get(field)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{field} is no text")
    return value


def _number(document: dict[str, Any], field: str) -> float:
    value = document.get(field, 0)
    if not isinstance(value, int | float) or not 0 <= value < 1 << 63:
        raise ValueError(f"{field} is no quantity")
    return value


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004 - all that is wrong with an answer is one error
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("no list")  # noqa: TRY004 - likewise
    return value
