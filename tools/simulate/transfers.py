"""Flights from one source: all that are under way share its bandwidth alike, and none is faster than a node."""

import heapq
from dataclasses import dataclass, field


@dataclass
class Transfers:
    """Flights by key. `source`: bytes a second for all together; `node`: the most for one.

    As all have the same rate, one number tells what each has got: the bytes that a flight would have got that was there
    from the beginning.
    """

    source: float
    node: float
    _got: float = 0.0
    _at: float = 0.0
    _ends: list[tuple[float, tuple[int, int]]] = field(default_factory=list)
    _begun: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Bytes a second of each flight now."""
        return min(self.node, self.source / max(1, len(self._begun)))

    def begin(self, now: float, key: tuple[int, int], size: int) -> None:
        """A flight of so many bytes."""
        self._to(now)
        self._begun[key] = self._got
        heapq.heappush(self._ends, (self._got + size, key))

    def next_end(self) -> float:
        """When the first flight ends if none begins before; infinite without one."""
        return self._at + (self._ends[0][0] - self._got) / self.rate if self._ends else float("inf")

    def end_first(self) -> tuple[int, int]:
        """Ends the flight of `next_end`, at that time."""
        self._to(self.next_end())
        end, key = heapq.heappop(self._ends)
        self._got = end  # and not what rounding makes of it
        del self._begun[key]
        return key

    def present(self, now: float, key: tuple[int, int]) -> int | None:
        """The bytes that a flight has brought; None if there is no such flight."""
        self._to(now)
        begun = self._begun.get(key)
        return None if begun is None else int(self._got - begun)

    def _to(self, now: float) -> None:
        if now > self._at:
            if self._begun:
                self._got += (now - self._at) * self.rate
            self._at = now
