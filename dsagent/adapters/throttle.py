"""A limit on bytes a second for all processes of an agent together, and sources and stores that keep it."""

import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator

from dsagent.core.entries import Stamp
from dsagent.core.ports import Location, Source, Store

_STATE = struct.Struct("dd")  # bytes a second, 0 for no limit; when the next byte may pass, in CLOCK_MONOTONIC seconds
_SLICE_SECONDS = 0.25  # a change of the limit is seen after this long


class Throttle:
    """Lets so many bytes a second pass. Processes share it by sharing its descriptor, which is a file in memory."""

    def __init__(self, descriptor: int = -1) -> None:
        if descriptor < 0:
            descriptor = os.memfd_create("dsagent-throttle")
            os.ftruncate(descriptor, _STATE.size)
        self.descriptor = descriptor
        self._state = mmap.mmap(descriptor, _STATE.size)
        self._lock = threading.Lock()

    @property
    def rate(self) -> float:
        """Bytes a second, 0 for no limit."""
        rate: float = _STATE.unpack_from(self._state)[0]
        return rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._change(lambda _rate, _free: (rate, 0.0))

    def spend(self, size: int) -> None:
        """Waits as long as `size` bytes take, after all that was spent before."""
        if not self.rate:
            return
        now = time.monotonic()
        until = self._change(lambda rate, free: (rate, max(now, free) + (size / rate if rate else 0.0)))
        while self.rate and (left := min(until, _STATE.unpack_from(self._state)[1]) - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_SECONDS))

    def _change(self, change: Callable[[float, float], tuple[float, float]]) -> float:
        """Changes the state, in one thread of one process at a time; returns when the next byte may pass."""
        with self._lock:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
            try:
                rate, free = change(*_STATE.unpack_from(self._state))
                _STATE.pack_into(self._state, 0, rate, free)
            finally:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN)
        return free


class ThrottledSource:
    """A source whose content passes a throttle."""

    def __init__(self, source: Source, throttle: Throttle) -> None:
        self._source = source
        self._throttle = throttle

    @property
    def location(self) -> Location:
        """See Source.location."""
        return self._source.location

    @property
    def remote(self) -> bool:
        """See Source.remote."""
        return self._source.remote

    def scan(self, special: list[bytes] | None = None) -> Iterator[Stamp]:
        """See Source.scan."""
        return self._source.scan(special)

    def chunks(self, stamp: Stamp) -> Iterator[bytes]:
        """See Source.chunks."""
        for chunk in self._source.chunks(stamp):
            self._throttle.spend(len(chunk))
            yield chunk


class ThrottledStore:
    """A store of which what is read passes a throttle."""

    def __init__(self, store: Store, throttle: Throttle) -> None:
        self._store = store
        self._throttle = throttle
        self.create = store.create
        self.replace = store.replace
        self.spool = store.spool
        self.entries = store.entries
        self.refresh = store.refresh
        self.delete = store.delete

    @property
    def location(self) -> Location:
        """See Store.location."""
        return self._store.location

    @property
    def remote(self) -> bool:
        """See Store.remote."""
        return self._store.remote

    def find(self, key: str) -> bytes | None:
        """See Store.find."""
        data = self._store.find(key)
        self._throttle.spend(len(data or b""))
        return data

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """See Store.read."""
        data = self._store.read(key, offset, length)
        self._throttle.spend(len(data))
        return data
