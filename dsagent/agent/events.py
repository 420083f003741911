"""What happened, numbered, for those who watch; the last of it is kept for those who come back."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dsagent.core.tasks import Owner

KEPT = 2_000

Kind = Literal["task", "deleted", "evicted", "limits", "lost"]


@dataclass(frozen=True)
class Event:
    """Something that happened. Ids grow, over restarts too. `task` and `owner` are empty for what concerns the whole
    node.
    """

    id: int
    kind: Kind
    task: str
    owner: Owner | None
    document: object


class EventLog:
    """The last events. Listeners are called in the thread that adds one and must not take long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._last = time.time_ns() // 1000  # larger than any id of an earlier run
        self._listeners: list[Callable[[Event], None]] = []

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Calls `listener` with every event from now on."""
        with self._lock:
            self._listeners.append(listener)

    def add(self, kind: Kind, document: object, task: str = "", owner: Owner | None = None) -> None:
        """Adds an event and tells the listeners."""
        with self._lock:
            self._last += 1
            event = Event(self._last, kind, task, owner, document)
            self._events.append(event)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(event)

    def since(self, event_id: int | None) -> tuple[list[Event], bool]:
        """The events after this one, and whether some between are lost; without an id, no events."""
        with self._lock:
            if event_id is None:
                return [], False
            kept = list(self._events)
            if event_id > self._last:  # of a run whose clock was ahead
                return kept, True
            first = kept[0].id if kept else self._last + 1
            return [event for event in kept if event.id > event_id], event_id < first - 1
