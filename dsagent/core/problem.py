"""An error as programs read it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """An RFC 9457 problem."""

    type: str
    title: str
    detail: str
    action: str
    subject: str
    cause: str
    hint: str
    exit_code: int
    paths: Sequence[str]
