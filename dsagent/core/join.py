"""Two sorted streams of entries side by side."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from dsagent.core.entries import path_order


class _HasPath(Protocol):
    @property
    def path(self) -> bytes: ...


L = TypeVar("L", bound=_HasPath)
R = TypeVar("R", bound=_HasPath)


def beside(left: Iterable[L], right: Iterable[R]) -> Iterator[tuple[L, R | None]]:
    """Each of `left` with the one of `right` at the same path, or None; both in path order."""
    theirs = iter(right)
    other = next(theirs, None)
    for one in left:
        path = one.path
        while other is not None and other.path != path and path_order(other.path) < path_order(path):
            other = next(theirs, None)
        if other is None or other.path != path:
            yield one, None
        else:
            yield one, other
            other = next(theirs, None)


def outer(left: Iterable[L], right: Iterable[R]) -> Iterator[tuple[L | None, R | None]]:
    """All paths of two streams in path order, with what each side has there, or None."""
    ours, theirs = iter(left), iter(right)
    one, other = next(ours, None), next(theirs, None)
    while one is not None or other is not None:
        if one is not None and other is not None and one.path == other.path:
            yield one, other
            one, other = next(ours, None), next(theirs, None)
        elif other is None or (one is not None and path_order(one.path) < path_order(other.path)):
            yield one, None
            one = next(ours, None)
        else:
            yield None, other
            other = next(theirs, None)
