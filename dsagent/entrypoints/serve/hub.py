"""From the agent's threads to the requests that wait in the event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from dsagent.agent.events import Event, EventLog

QUEUED = 1000  # events that a slow reader may be behind; then it is cut off, and comes back with the last id


class Hub:
    """Passes events on to whoever waits for them. Used in one event loop, but for what the log calls."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: set[asyncio.Queue[Event | None]] = set()
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def start(self) -> None:
        """Begins, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._log.listen(self._heard)

    def close(self) -> None:
        """Ends all waiting, so that connections can be closed."""
        for queue in self._queues:
            with contextlib.suppress(asyncio.QueueFull):  # its reader finds out when it comes to the end
                queue.put_nowait(None)
        self._queues.clear()
        for events in self._waiting.values():
            for event in events:
                event.set()

    @contextlib.contextmanager
    def watching(self, task: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the task changes, and when the hub is closed."""
        changed = asyncio.Event()
        self._waiting.setdefault(task, set()).add(changed)
        try:
            yield changed
        finally:
            self._waiting[task].discard(changed)
            if not self._waiting[task]:
                del self._waiting[task]

    async def events(self, after: int | None, tick: float) -> AsyncIterator[Event | None]:
        """The events after `after`, and those to come; None after each `tick` seconds without one. `lost` comes first,
        with the id 0, if some are not known any more. Ends with the hub, and for a reader that is too slow.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUED)
        self._queues.add(queue)
        try:
            missed, lost = self._log.since(after)
            last = 0 if after is None or lost else after
            if lost:
                yield Event(0, "lost", "", None, {})
            for event in missed:
                last = event.id
                yield event
            while queue in self._queues:
                try:
                    event_or_end = await asyncio.wait_for(queue.get(), tick)
                except TimeoutError:
                    yield None
                    continue
                if event_or_end is None:
                    return
                if event_or_end.id > last:
                    yield event_or_end
        finally:
            self._queues.discard(queue)

    def _heard(self, event: Event) -> None:
        # Whoever waits has said so before it looked at what there was: without one there is nobody to tell.
        if not (self._queues or event.task in self._waiting):
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._spread, event)

    def _spread(self, event: Event) -> None:
        for changed in self._waiting.get(event.task, ()):
            changed.set()
        for queue in list(self._queues):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self._queues.discard(queue)
