"""Serving the app on a Unix socket and over TLS, until a signal ends it."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dsagent.core.errors import InUse, UsageError, local_error
from dsagent.entrypoints.serve.identity import peer_of
from dsagent.entrypoints.serve.problems import Unavailable, answer
from dsagent.entrypoints.serve.request_limits import MAX_HEAD
from dsagent.entrypoints.serve.settings import AgentSettings

BACKLOG = 2048
CONNECTIONS = 4096
CLOSE_SECONDS = 5
SLOW_SECONDS = 30.0
TICK_SECONDS = 1.0
OWN_LASTS = timedelta(days=3650)  # of an agent that is never restarted


class PeerProtocol(HttpToolsProtocol):
    """Names the peer of a Unix socket as the client, cuts off a client that is slow with its request, and refuses a
    head that grows too large.
    """

    _late: asyncio.TimerHandle | None = None
    _in_head = False
    _head = 0  # bytes of a head that is not here whole

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection begins."""
        super().connection_made(transport)  # type: ignore[arg-type]
        connection: socket.socket = transport.get_extra_info("socket")
        if connection.family == socket.AF_UNIX:
            self.client = (peer_of(connection), 0)
        self._expect(more=True)

    def data_received(self, data: bytes) -> None:
        """More of a request, or of the next one."""
        super().data_received(data)
        self._head = self._head + len(data) if self._in_head else 0
        if self._head > MAX_HEAD:
            self.send_400_response(f"its head has more than {MAX_HEAD} bytes")

    def send_400_response(self, msg: str) -> None:
        """What cannot be read as a request is answered, and the connection closed."""
        problem = answer(UsageError("read", "a request", msg.rstrip(".")))
        fields = [*self.server_state.default_headers, *problem.raw_headers, (b"connection", b"close")]
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%b\r\n%b" % (head, bytes(problem.body)))
        self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._in_head = True
        self._expect(more=True)

    def on_headers_complete(self) -> None:
        """The head is here."""
        self.app = self.config.loaded_app if len(self.connections) <= CONNECTIONS else _one_too_many
        super().on_headers_complete()
        self._in_head = False

    def on_message_complete(self) -> None:
        """All of a request is here."""
        super().on_message_complete()
        self._expect(more=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        self._expect(more=False)

    def _expect(self, more: bool) -> None:
        """Whether the rest of a request is to come: all of it within SLOW_SECONDS, however it trickles."""
        if more and self._late is None:
            self._late = self.loop.call_later(SLOW_SECONDS, self.transport.abort)
        elif not more and self._late is not None:
            self._late.cancel()
            self._late = None


async def _one_too_many(scope: Scope, receive: Receive, send: Send) -> None:
    refused = Unavailable("ask", "the agent", f"{CONNECTIONS} others do", "ask again in a moment")
    given = answer(refused)
    given.headers["Connection"] = "close"
    await given(scope, receive, send)


class _Server(uvicorn.Server):
    """A server beside another one: signals are handled for both together."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Lets it come to its end."""
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        """Until its end; awake once a second, for the date in its answers, and not ten times as by default."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), TICK_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def servers(app: FastAPI, settings: AgentSettings) -> "list[tuple[_Server, socket.socket]]":
    """The servers for the settings, each with its bound socket. Raises UsageError, InUse."""
    found = [(_server(app, {}), _unix_socket(settings.socket))]
    if settings.tcp:
        try:
            found.append((_tls_server(app, settings), _tcp_socket(settings.tcp)))
        except (OSError, ValueError) as error:
            raise UsageError("serve on", settings.tcp, str(error), "check --tcp, --tls-cert and --tls-key") from error
    return found


def _tls_server(app: FastAPI, settings: AgentSettings) -> _Server:
    """With the certificate that was given, or one of its own, which the API server's proxy does not look at."""
    if settings.tls_cert:
        return _server(app, {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key})
    from dsagent.entrypoints.self_signed import as_files, new_pair  # noqa: PLC0415 - in a cluster only

    with as_files(new_pair((settings.node or "dsagent",), datetime.now(UTC), OWN_LASTS)) as (certificate, key):
        return _server(app, {"ssl_certfile": certificate, "ssl_keyfile": key})


def _server(app: FastAPI, tls: dict[str, str | None]) -> _Server:
    config = uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # who is asking is never what a header says
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        **tls,  # type: ignore[arg-type]
    )
    config.load()
    return _Server(config)


def _unix_socket(path: str) -> socket.socket:
    """A socket at `path`, in place of one that nobody listens to any more."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise UsageError("serve on", path, "there is a file that is no socket", "give another --socket")
            if _answers(path):
                raise InUse("serve on", path, "another process listens there", "stop it, or give another --socket")
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o666)  # pods of any user ask; who they are is shown with each request
    except OSError as error:
        listener.close()
        raise local_error("serve on", path, error) from error
    return listener


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _tcp_socket(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, where = socket.getaddrinfo(
        host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(where)
    return listener


async def run(
    running: "list[tuple[_Server, socket.socket]]", begin: Callable[[], None], end: Callable[[], Awaitable[None]]
) -> None:
    """Serves until SIGTERM or SIGINT: `begin` is called when the loop runs, `end` before connections are closed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    begin()
    serving = [asyncio.create_task(server.serve([listener])) for server, listener in running]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
    await end()
    for server, _ in running:
        server.end()
    await asyncio.gather(*serving)
    stopping.cancel()
