"""One dataset on its way, for all tasks that ask for the same thing in the same way."""

import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dsagent.agent.gate import Cancelled, Share
from dsagent.core.eviction import Evicted
from dsagent.core.ports import CachedVersion
from dsagent.core.progress import Progress, Stretch
from dsagent.core.space import Space
from dsagent.service.node import Node, held
from dsagent.service.origins import CacheRequest, Origin
from dsagent.service.results import CacheResult

Phase = Literal["resolving", "waiting", "running", "done", "failed"]


class ErrandMeter:
    """Counts an errand's progress; raises Cancelled in the flight that nobody needs any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stretch: Stretch | None = None
        self.cancelled = False

    def start(self, verb: str, subject: str, total_bytes: int, total_files: int) -> None:
        """See Meter.start."""
        self._stretch = Stretch(verb, subject, total_bytes, total_files)

    def advance(self, size: int, files: int) -> None:
        """See Meter.advance."""
        if self.cancelled:
            raise Cancelled("bring", "a dataset", "nobody needs it any more")
        with self._lock:
            if self._stretch is not None:
                self._stretch.bytes += size
                self._stretch.files += files

    def stop(self) -> None:
        """See Meter.stop."""

    def now(self) -> Progress | None:
        """How far it is, or None before it has begun."""
        with self._lock:
            return self._stretch.now() if self._stretch else None


class Brought(NamedTuple):
    """What an errand has made present."""

    version: CachedVersion
    result: CacheResult


@dataclass(eq=False)
class Errand:
    """A request, and how far it is.

    Its phases: `resolving` (the source is listed, or the store's manifest read), then `done` if it is here, else
    `waiting` until its space is promised, `running`, and `done` or `failed`. `tasks` are those that ask for it.
    `listed` is when its source was last asked what it has, in time.monotonic() seconds.
    """

    request: CacheRequest
    prefetch: bool
    tasks: set[str] = field(default_factory=set)
    phase: Phase = "resolving"
    origin: Origin | None = None
    listed: float = 0.0
    flight: str = ""
    need: Space = Space()  # noqa: RUF009 - it is frozen
    keep: tuple[str, ...] = ()
    share: Share | None = None
    evicted: tuple[Evicted, ...] = ()
    brought: Brought | None = None
    meter: ErrandMeter = field(default_factory=ErrandMeter)
    _admission: ExitStack = field(default_factory=ExitStack)

    def admit(self, node: Node) -> bool:
        """Holds the lock by which the promise of its space stays while its flight has not begun. False while another
        errand does, that asks for the same in another way, such as with other credentials.
        """
        try:
            self._admission.enter_context(held(node.admission(self.flight), waiting=_give_up))
        except BlockingIOError:
            return False
        # Nobody waits for it: another errand that finds it held asks again, and then makes a new one.
        self._admission.callback(node.admission(self.flight).unlink, missing_ok=True)
        return True

    def land(self) -> None:
        """Its flight is over, or was not admitted: gives up its share and the promise."""
        self._admission.close()
        if self.share is not None:
            self.share.close()

    def cancel(self) -> None:
        """Nobody needs it: its flight ends at the next file."""
        self.meter.cancelled = True
        if self.share is not None:
            self.share.close()

    def is_resolved(self, origin: Origin, need: Space, keep: Iterable[str]) -> None:
        """It is not here: waits for its admission."""
        self.origin, self.flight, self.need, self.keep = origin, origin.flight, need, tuple(keep)
        self.phase = "waiting"

    def settle(self, brought: Brought) -> None:
        """What it was for is here, and leased to all that asked."""
        self.phase, self.brought, self.origin = "done", brought, None

    def is_recent(self, seconds: float) -> bool:
        """Whether its source was listed no longer ago than this."""
        return time.monotonic() - self.listed < seconds


def _give_up() -> None:
    raise BlockingIOError
