"""Waiting for what is certain to come."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.command import HANG_SECONDS

Found = TypeVar("Found")


def until(
    condition: Callable[[], Found], seconds: float = HANG_SECONDS, said: Callable[[], object] = lambda: "it never came"
) -> Found:
    """What `condition` gives as soon as that is true; `said` is asked when it is not so in time."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, said()
        time.sleep(0.01)
    return found
