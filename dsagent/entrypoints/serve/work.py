"""Work that takes long: in threads of its own, so that short requests are answered meanwhile."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi.responses import StreamingResponse

from dsagent.agent.errand import ErrandMeter
from dsagent.agent.secrets import remembered
from dsagent.entrypoints.serve.answers import as_event
from dsagent.entrypoints.serve.problems import Unavailable, as_error
from dsagent.entrypoints.serve.state import State
from dsagent.service.node import Node

AT_ONCE = 16
# More of them only take the interpreter from each other: of 200 calls/s, one in ten took 13-25 ms, and with 40 of
# these threads 40-58 ms.
SHORT_AT_ONCE = 2
TICK_SECONDS = 1.0

P = ParamSpec("P")
T = TypeVar("T")
Verb = Callable[[Node], object]

_long = CapacityLimiter(AT_ONCE)
_short = CapacityLimiter(SHORT_AT_ONCE)
_streams = threading.BoundedSemaphore(AT_ONCE)


async def in_background(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does it in a thread of the few for what takes long; waits for one to be free."""
    return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=_long)


async def shortly(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does it in one of the few threads for what is done in a moment, and often asked for."""
    return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=_short)


class Work:
    """A verb under way in a thread of its own, and its end: a result or an error."""

    def __init__(self, state: State, verb: Verb) -> None:
        self.meter = ErrandMeter()
        self.end: tuple[str, object] | None = None
        self._state = state
        self._verb = verb
        self._secrets = remembered()
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()

    def run(self) -> None:
        """Does it."""
        try:
            with self._state.agent.working(self.meter) as node:
                self.end = ("result", self._verb(node))
        except Exception as error:  # noqa: BLE001 - the thread's last word
            self.end = ("problem", as_error(error, self._secrets).problem())
        finally:
            _streams.release()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.ended.set)


def stream(state: State, verb: Verb) -> StreamingResponse:
    """The verb's progress as events, at last its `result` or `problem`. A client that goes away ends it.

    Raises Unavailable if too many are under way.
    """
    if not _streams.acquire(blocking=False):
        raise Unavailable("begin", "one more", f"{AT_ONCE} are under way", "ask again in a moment")
    work = Work(state, verb)
    threading.Thread(target=work.run, name="verb", daemon=True).start()
    return StreamingResponse(_events(state, work), media_type="text/event-stream")


async def _events(state: State, work: Work) -> AsyncIterator[bytes]:
    try:
        yield b": dsagent\n\n"
        while work.end is None:
            try:
                await asyncio.wait_for(work.ended.wait(), TICK_SECONDS)
            except TimeoutError:
                if state.draining:
                    break
                yield _progress(work.meter)
        if work.end is None:
            gone = Unavailable("go on with", "this", "the agent is ending", "ask again: the next one does it")
            work.end = ("problem", gone.problem())
        yield _progress(work.meter)  # how it stood at its end
        yield as_event(*work.end)
    finally:
        work.meter.cancelled = True


def _progress(meter: ErrandMeter) -> bytes:
    now = meter.now()
    if now is None:
        return b": still here\n\n"
    document = {
        "verb": now.verb,
        "subject": now.subject,
        "bytes_done": now.bytes,
        "bytes_total": now.total_bytes,
        "files_done": now.files,
        "files_total": now.total_files,
        "rate": now.byte_rate,
        "eta_seconds": now.remaining,
    }
    return as_event("progress", document)
