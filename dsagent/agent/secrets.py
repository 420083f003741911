"""Errors that do not repeat credentials: what a storage says of a key that it refuses may quote it."""

import traceback

from dsagent.contract import STORAGE_OPTIONS
from dsagent.core.errors import DsagentError
from dsagent.core.ports import BENEATH, Location

HIDDEN = "***"
SHORTEST = 4  # what is shorter is no secret, and stands in many a word


def secrets_of(*places: Location | None) -> list[str]:
    """The values of the credentials that open these places."""
    options = [option for place in places if place is not None for option in place.options]
    found = {value for name, value in options if name not in {*STORAGE_OPTIONS, BENEATH} and len(value) >= SHORTEST}
    return sorted(found, key=len, reverse=True)


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
