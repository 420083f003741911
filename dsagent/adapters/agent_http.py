"""Asking an agent over HTTP: its socket or TLS, what its refusals mean, and its restarts, which are pauses only."""

import contextlib
import http.client
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from dsagent.adapters.agent_address import Access, is_held
from dsagent.adapters.agent_answers import result
from dsagent.contract import ENV_CA_FILE, ENV_TOKEN_FILE
from dsagent.core.errors import AgentUnreachable, NotPermitted, UsageError, error_of
from dsagent.core.problem import Problem

log = logging.getLogger("dsagent")

CONNECT_SECONDS = 5.0
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5
START_HINT = "see that it runs, or start one: dsagent serve --root DIR --socket PATH"

# An https peer that is gone without a word is noticed after half a minute.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class Away(AgentUnreachable):
    """The agent does not answer now, and may do so in a moment."""


class AgentHttp:
    """One user's way to an agent; for one thread. `patience`: seconds without an answer until it is given up."""

    def __init__(self, access: Access, patience: float) -> None:
        self._connection: http.client.HTTPConnection | None = None
        self._access = access
        self._patience = patience
        self._met = False
        self._prefix = access.way.prefix if access.way else ""

    @property
    def subject(self) -> str:
        """The agent, in errors."""
        return f"the agent at {self._access.address.text}"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return bool(self._access.address.socket)

    def __del__(self) -> None:
        """Whoever drops it leaves no connection open."""
        self.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The document that answers a request. While the agent is away it is asked again, until patience is over.

        Raises AgentUnreachable, and the error that the agent's problem tells of.
        """
        pause = _Pause(self)
        while True:
            try:
                return self.once(method, path, body)
            except Away as away:
                pause(away)

    def once(self, method: str, path: str, body: object = None, seconds: float | None = None) -> Any:
        """Like `ask`, but raises Away if the agent is away. `seconds`: how long an answer may take."""
        answer = self._send(method, path, body, seconds)
        data = self._read(answer)
        if answer.status >= 400:
            raise self._refusal(answer.status, data)
        return self._document(data) if data else None

    def stream(self, method: str, path: str, body: object) -> Iterator[tuple[str, Any]]:
        """The events (kind, document) that answer a request, to their end; errors as for `ask`."""
        pause = _Pause(self)
        while True:
            try:
                answer = self._send(method, path, body, None)
                if answer.status >= 400:
                    raise self._refusal(answer.status, self._read(answer))
                break
            except Away as away:
                pause(away)
        try:
            yield from self._events(answer)
        finally:
            self.close()  # whoever stops to read wants no more

    def close(self) -> None:
        """Ends the connection; the next request makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def may_come_back(self, since: float) -> bool:
        """Whether an agent that is away since then (time.monotonic()) may be waited for."""
        lock = self._access.address.lock
        if not self._met and not (lock is not None and is_held(lock)):
            return False
        return time.monotonic() - since < self._patience

    def _send(self, method: str, path: str, body: object, seconds: float | None) -> http.client.HTTPResponse:
        """Raises Away only if the agent has not begun with the request, or may be asked for it twice."""
        kept = self._connection
        if method == "POST":  # an idle connection may be at its end just now, and a POST is not to be sent twice
            self.close()
            kept = None
        headers = {"Content-Type": "application/json", **self._authorization()}
        data = None if body is None else orjson.dumps(body)
        try:
            connection = self._connected(seconds)
            connection.request(method, self._prefix + path, data, headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            reached = self._connection is not None
            self.close()
            if kept is not None and not isinstance(error, TimeoutError):
                return self._send(method, path, body, seconds)
            raise self._failure(error, away=not reached or method != "POST") from error
        return answer

    def _connected(self, seconds: float | None) -> http.client.HTTPConnection:
        if self._connection is None:
            connection = self._make()
            connection.connect()
            self._connection, self._met = connection, True
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)
        return self._connection

    def _make(self) -> http.client.HTTPConnection:
        address = self._access.address
        if self._access.way is not None:
            return self._access.way.connection()
        if address.socket:
            return _SocketConnection(address.socket)
        import ssl  # noqa: PLC0415 - the socket needs none

        try:
            context = ssl.create_default_context(cafile=self._access.ca_file or None)
        except OSError as error:
            cause = f"it holds no certificates ({error.strerror or error})"
            raise UsageError("use", f"{ENV_CA_FILE} {self._access.ca_file}", cause, "name a PEM file") from error
        return _TlsConnection(address.host, address.port, timeout=CONNECT_SECONDS, context=context)

    def _authorization(self) -> dict[str, str]:
        """Read for each request: tokens are renewed."""
        if self._access.way is not None:
            return self._access.way.headers()
        file = self._access.token_file
        if not file:
            return {}
        try:
            token = Path(file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or "it is no token"
            raise UsageError("read", f"{ENV_TOKEN_FILE} {file}", cause) from error
        return {"Authorization": f"Bearer {token}"}

    def _failure(self, error: OSError | http.client.HTTPException, away: bool) -> AgentUnreachable | NotPermitted:
        if isinstance(error, PermissionError):
            return NotPermitted("ask", self.subject, error.strerror or str(error), "ask as a user who may")
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            cause = getattr(error, "verify_message", "") or str(error)
            return AgentUnreachable("trust", self.subject, cause, f"name its authority's file in {ENV_CA_FILE}")
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if away:
            return Away("ask", self.subject, cause, START_HINT)
        return AgentUnreachable("ask", self.subject, f"it went away in the middle ({cause})", "ask again")

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._failure(error, away=answer.status < 400) from error

    def _refusal(self, status: int, data: bytes) -> Exception:
        document = self._document(data)
        if not isinstance(document, dict) or "exit_code" not in document:
            said = document.get("message") if isinstance(document, dict) else None
            cause = str(said or f"it answered with status {status}")
            return AgentUnreachable("ask", self.subject, cause, "see that the address is an agent's")
        problem = result(Problem, document)
        if status == 503:
            return Away("ask", self.subject, problem.cause, problem.hint)
        return error_of(problem)

    def _document(self, data: bytes) -> Any:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            cause = "what answers there speaks no JSON"
            raise AgentUnreachable("ask", self.subject, cause, "see that the address is an agent's") from error

    def _events(self, answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
        kind, data = "", b""
        try:
            while line := answer.readline():
                name, _, value = line.rstrip(b"\r\n").partition(b":")
                if name == b"event":
                    kind = value.strip().decode()
                elif name == b"data":
                    data += value
                elif not line.strip() and data:
                    yield kind, self._document(data)
                    kind, data = "", b""
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error, away=False) from error


class _Pause:
    """Waits between two attempts, longer each time; raises AgentUnreachable when there are to be no more."""

    def __init__(self, http_: AgentHttp) -> None:
        self._http = http_
        self._since = time.monotonic()
        self._seconds = FIRST_PAUSE
        self._said = False

    def __call__(self, away: Away) -> None:
        if not self._http.may_come_back(self._since):
            raise AgentUnreachable(away.action, away.subject, away.cause, away.hint) from away
        if not self._said and self._seconds >= LONGEST_PAUSE:
            log.warning("%s does not answer now (%s); waiting for it", away.subject, away.cause)
            self._said = True
        time.sleep(self._seconds)
        self._seconds = min(LONGEST_PAUSE, 2 * self._seconds)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """Connects to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(CONNECT_SECONDS)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


class _TlsConnection(http.client.HTTPSConnection):
    """HTTP over TLS, to a peer that may be gone without a word."""

    def connect(self) -> None:
        """Connects, and looks after the connection."""
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            self.sock.setsockopt(socket.IPPROTO_TCP, option, value)
