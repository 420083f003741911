"""A store in memory."""

import io
import threading
from collections.abc import Iterator
from typing import BinaryIO

from dsagent.core.errors import BadStore
from dsagent.core.ports import Clock, Location, StoredObject
from tests.fakes.node import ManualClock


class MemoryStore:
    """Objects in a dict; what is no key of a store is refused."""

    remote = False

    def __init__(self, url: str = "memory-store", clock: Clock | None = None) -> None:
        self.location = Location(url)
        self.objects: dict[str, bytes] = {}
        self._modified: dict[str, float] = {}
        self._clock = clock or ManualClock()
        self._lock = threading.Lock()

    def find(self, key: str) -> bytes | None:
        return self.objects.get(_checked(key))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        data = self._existing(key)
        return data[offset:] if length is None else data[offset : offset + length]

    def create(self, key: str, data: bytes | BinaryIO) -> bool:
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        with self._lock:
            if _checked(key) in self.objects:
                return False
            self._put(key, data)
            return True

    def replace(self, key: str, data: bytes, expected: bytes | None) -> bool:
        with self._lock:
            if self.objects.get(_checked(key)) != expected:
                return False
            self._put(key, data)
            return True

    def spool(self) -> BinaryIO:
        return io.BytesIO()

    def entries(self, prefix: str) -> Iterator[StoredObject]:
        assert prefix.endswith("/")
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield StoredObject(key, len(self.objects[key]), self._modified[key])

    def refresh(self, key: str) -> None:
        self._put(key, self._existing(key))

    def delete(self, key: str) -> None:
        self.objects.pop(_checked(key), None)

    def _existing(self, key: str) -> bytes:
        data = self.find(key)
        if data is None:
            raise BadStore("read", f"{self.location.url}/{key}", "there is no such object")
        return data

    def _put(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self._modified[key] = self._clock.now().timestamp()


def _checked(key: str) -> str:
    assert key
    assert not key.startswith("/")
    assert not key.endswith("/")
    return key
