"""Errors that do not repeat credentials: what a storage says of a key that it refuses may quote it."""

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from dsagent.contract import STORAGE_OPTIONS
from dsagent.core.errors import DsagentError
from dsagent.core.ports import BENEATH, Location

HIDDEN = "***"
SHORTEST = 4  # what is shorter is no secret, and stands in many a word

_KNOWN: ContextVar[list[str] | None] = ContextVar("secrets", default=None)


def secrets_of(*places: Location | None) -> list[str]:
    """The values of the credentials that open these places."""
    options = [option for place in places if place is not None for option in place.options]
    found = {value for name, value in options if name not in {*STORAGE_OPTIONS, BENEATH} and len(value) >= SHORTEST}
    return sorted(found, key=len, reverse=True)


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """Lets what is done meanwhile, in this context and those made from it, remember the secrets that it was given."""
    token = _KNOWN.set([])
    try:
        yield
    finally:
        _KNOWN.reset(token)


def remember(secrets: Iterable[str]) -> None:
    """These were given; nothing happens where nobody asked to remember."""
    known = _KNOWN.get()
    if known is not None:
        known.extend(secret for secret in secrets if len(secret) >= SHORTEST)


def remembered() -> list[str]:
    """What was given, the longest first."""
    return sorted(_KNOWN.get() or [], key=len, reverse=True)


def without(error: DsagentError, secrets: list[str]) -> DsagentError:
    """The error without these, itself if it has none of them."""
    if hide(str(error), secrets) == str(error):
        return error
    action, subject, cause, hint = (
        hide(text, secrets) for text in (error.action, error.subject, error.cause, error.hint)
    )
    return type(error)(action, subject, cause, hint, error.paths)


def trace(error: Exception, secrets: list[str]) -> str:
    """Where an error that is none of ours came from, for the log."""
    return hide("".join(traceback.format_exception(error)), secrets)


def hide(text: str, secrets: list[str]) -> str:
    """The text with something in the place of each secret."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text
