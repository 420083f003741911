"""Crews of real workers whose share of the node shrinks while they work."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from dsagent.adapters.throttle import Throttle
from dsagent.core.errors import WorkerDied
from dsagent.engine.crew import Crew, Job, Result
from dsagent.wiring import Wiring
from tests.support.jobs import Dies, Sends

SECONDS = 30  # ends what would hang


class Shrinking:
    """A gate that has room for two workers, and from then on for one."""

    def __init__(self) -> None:
        self._asked = 0

    def workers(self, most: int) -> int:
        self._asked += 1
        return most if self._asked == 1 else 1

    def slot(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew(2, Wiring(Throttle(), keep=False), lambda _size, _files: None, gate=Shrinking()) as found:
        yield found


def ended(work: Callable[[], Any]) -> Any:
    """What it returns, or the error that it raises; fails if it does not end."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - the thread's last word
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert found, "it hangs"
    return found[0]


def results(crew: Crew, jobs: list[Job]) -> list[Any]:
    work = ((None, job) for job in jobs)
    return [part.value for _, part in crew.in_order(work, ahead=len(jobs)) if isinstance(part, Result)]


def test_all_jobs_are_done_by_those_who_stay(crew: Crew) -> None:
    jobs: list[Job] = [Sends(str(number), parts=20) for number in range(8)]
    assert ended(lambda: results(crew, jobs)) == [str(number) for number in range(8)]


def test_the_death_of_the_one_who_stays_is_said(crew: Crew) -> None:
    jobs: list[Job] = [Sends("first", parts=0), *[Dies() for _ in range(4)]]
    assert isinstance(ended(lambda: results(crew, jobs)), WorkerDied)
