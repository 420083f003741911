"""A fair share of the node's workers for every flight, so that a huge dataset does not starve a small one."""

import contextlib
import threading
from collections.abc import Iterator

from dsagent.core.errors import DsagentError


class Cancelled(DsagentError):
    """Nobody needs the flight any more."""

    title = "Nobody needs it any more"


class FairGate:
    """A number of slots, one for each job that may run at once on the node.

    A free slot goes to the flight that has the fewest, pods before prefetches, and among equals to the one that has
    waited longest.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._free = slots
        self._turns = 0
        self._shares: list[Share] = []
        self._changed = threading.Condition()

    def share(self, prefetch: bool) -> "Share":
        """One flight's access to the slots, until it is closed."""
        share = Share(self, prefetch)
        with self._changed:
            self._shares.append(share)
        return share

    def fair(self) -> int:
        """How many slots each flight has when all are busy."""
        with self._changed:
            return -(-self._slots // max(1, len(self._shares)))

    def take(self, share: "Share") -> None:
        """Waits for a slot; raises Cancelled when the share is closed."""
        with self._changed:
            share.waiting += 1
            self._changed.wait_for(lambda: share.closed or (self._free and self._next() is share))
            share.waiting -= 1
            if share.closed:
                raise Cancelled("work for", "a dataset", "nobody needs it any more")
            self._turns += 1
            self._free -= 1
            share.busy += 1
            share.turn = self._turns
            self._changed.notify_all()  # with another slot free, the next in turn is another one now

    def give_back(self, share: "Share") -> None:
        """Frees a slot."""
        with self._changed:
            self._free += 1
            share.busy -= 1
            self._changed.notify_all()

    def close(self, share: "Share") -> None:
        """Ends a share: whoever waits for it waits no more."""
        with self._changed:
            share.closed = True
            if share in self._shares:
                self._shares.remove(share)
            self._changed.notify_all()

    def _next(self) -> "Share | None":
        waiting = (share for share in self._shares if share.waiting)
        return min(waiting, key=lambda share: (share.prefetch, share.busy, share.turn), default=None)


class Share:
    """One flight's part of a gate; the Gate of its crew."""

    def __init__(self, gate: FairGate, prefetch: bool) -> None:
        self._gate = gate
        self.prefetch = prefetch
        self.waiting = self.busy = self.turn = 0
        self.closed = False

    def workers(self, most: int) -> int:
        """See Gate.workers."""
        return min(most, self._gate.fair())

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """See Gate.slot; raises Cancelled."""
        self._gate.take(self)
        try:
            yield
        finally:
            self._gate.give_back(self)

    def close(self) -> None:
        """Ends it; jobs that wait for a slot raise Cancelled."""
        self._gate.close(self)
