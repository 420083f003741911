"""One HTTP/1.1 request and its answer on a connection. http.client does it too, and takes longer to import than all of
this client takes to start.
"""

import socket
from collections.abc import Callable, Mapping
from typing import BinaryIO, NamedTuple

_LARGEST_ANSWER = 16 << 20
_LONGEST_LINE = 64 << 10
_MOST_HEADERS = 100


class NotUnderstoodError(Exception):
    """What came is no HTTP, or more of it than an answer can be."""


class Answer(NamedTuple):
    """An answer. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """A connection that is opened when it is needed, and kept as long as the other end keeps it."""

    def __init__(self, host: str, connect: Callable[[float], socket.socket]) -> None:
        self._host = host
        self._connect = connect
        self._socket: socket.socket | None = None
        self._stream: BinaryIO | None = None

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Answer:
        """Sends a request and reads its answer. The other end may be silent for up to `seconds`.

        Raises OSError if it is lost on the way, which also closes it, and NotUnderstoodError.
        """
        try:
            answer = self._ask(method, path, headers, body, seconds)
        except BaseException:
            self.close()
            raise
        if "close" in answer.headers.get("connection", "").lower():
            self.close()
        return answer

    def close(self) -> None:
        """Closes it; the next request opens another."""
        for open_ in (self._stream, self._socket):
            if open_ is not None:
                open_.close()
        self._socket = self._stream = None

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Answer:
        if self._socket is None or self._stream is None:
            self._socket = self._connect(seconds)
            self._stream = self._socket.makefile("rb")
        self._socket.settimeout(seconds)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        return read_answer(self._stream)


def read_answer(stream: BinaryIO) -> Answer:
    """The next answer of a stream. Raises OSError if it ends too early, and NotUnderstoodError."""
    while True:
        status = _status(_line(stream))
        headers: dict[str, str] = {}
        while line := _line(stream):
            name, colon, value = line.partition(":")
            if not colon or len(headers) >= _MOST_HEADERS:
                raise NotUnderstoodError("its headers are none")
            headers[name.strip().lower()] = value.strip()
        if status >= 200:  # before the answer there may be others, which say that it will come
            return Answer(status, headers, _body(stream, status, headers))


def _status(line: str) -> int:
    version, _, rest = line.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise NotUnderstoodError("it does not speak HTTP")
    return int(rest[:3])


def _body(stream: BinaryIO, status: int, headers: Mapping[str, str]) -> bytes:
    if status in (204, 304):
        return b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunks(stream)
    if "content-length" not in headers:
        return _limited(stream.read(_LARGEST_ANSWER + 1))
    return _exactly(stream, _size(headers["content-length"], 10))


def _chunks(stream: BinaryIO) -> bytes:
    body = b""
    while size := _size(_line(stream).partition(";")[0], 16):
        body = _limited(body + _exactly(stream, size))
        _line(stream)
    while _line(stream):
        pass
    return body


def _size(text: str, base: int) -> int:
    try:
        size = int(text.strip(), base)
    except ValueError:
        size = -1
    if not 0 <= size <= _LARGEST_ANSWER:
        raise NotUnderstoodError("what it sent is too long" if size > 0 else "what it sent has no length")
    return size


def _limited(body: bytes) -> bytes:
    if len(body) > _LARGEST_ANSWER:
        raise NotUnderstoodError("what it sent is too long")
    return body


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionResetError
    return data


def _line(stream: BinaryIO) -> str:
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        if len(line) < _LONGEST_LINE:
            raise ConnectionResetError
        raise NotUnderstoodError("it does not speak HTTP")
    return line.decode("latin-1").rstrip("\r\n")
