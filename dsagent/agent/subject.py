"""What a thread's work is about, for the lines that it logs."""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

_SUBJECT: ContextVar[Mapping[str, str]] = ContextVar("subject", default={})  # noqa: B039 - it is never changed


@contextlib.contextmanager
def about(**subject: str) -> Iterator[None]:
    """Lets the lines that this thread logs meanwhile carry these: task, dataset, pod."""
    token = _SUBJECT.set({**_SUBJECT.get(), **subject})
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def current() -> Mapping[str, str]:
    """What this thread's work is about."""
    return _SUBJECT.get()
