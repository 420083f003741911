"""The webhook over TLS: one POST, and two GETs that say how it is."""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvicorn

from dsagent.core.cluster import Object
from dsagent.core.errors import UsageError
from dsagent.entrypoints.self_signed import Pair, as_files

log = logging.getLogger("dsagent")

PATH = "/inject"
LARGEST = 8 << 20  # an API server takes objects of up to 3 MiB
CLOSE_SECONDS = 5

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class App:
    """Answers AdmissionReviews with `answer`, in threads: it asks the API server."""

    def __init__(self, answer: Callable[[Object], Object]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        status, body = await self._respond(scope["method"], scope["path"], receive)
        kind = b"application/json" if status == 200 and scope["method"] == "POST" else b"text/plain"
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, method: str, path: str, receive: Receive) -> tuple[int, bytes]:
        if (method, path) in (("GET", "/healthz"), ("GET", "/readyz")):
            return 200, b"ok\n"
        if (method, path) != ("POST", PATH):
            return 404, b"there is POST /inject, GET /healthz and GET /readyz\n"
        body = await _body(receive)
        if body is None:
            return 413, b"the review is too large\n"
        try:
            review = orjson.loads(body)
            return 200, orjson.dumps(await asyncio.to_thread(self._answer, review))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            log.exception("a review cannot be understood")
            return 400, b"this is no AdmissionReview of a pod\n"


class Server:
    """Serves an app; `serve_with` sets the certificate of the connections that come after it."""

    def __init__(self, app: App, host: str, port: int, pair: Pair) -> None:
        with as_files(pair) as (certificate, key):
            self._config = uvicorn.Config(
                app,
                host=host,
                port=port,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSE_SECONDS,
            )
            try:
                self._config.load()
            except (OSError, ValueError) as error:
                raise UsageError(
                    "serve with", "the certificate", str(error), "see that it belongs to the key"
                ) from error
        self._server = uvicorn.Server(self._config)

    def serve_with(self, pair: Pair) -> None:
        """Raises UsageError if the certificate does not belong to the key."""
        context = self._config.ssl
        if context is None:
            raise AssertionError
        with as_files(pair) as (certificate, key):
            try:
                context.load_cert_chain(certificate, key)
            except ssl.SSLError as error:
                raise UsageError("serve with", "the new certificate", str(error)) from error

    def run(self) -> None:
        """Serves until SIGTERM, SIGINT or `stop`."""
        self._server.run()

    def stop(self) -> None:
        """Lets `run` end."""
        self._server.should_exit = True

    def port(self) -> int:
        """The port, once it serves."""
        while not self._server.started:
            time.sleep(0.01)
        found: int = self._server.servers[0].sockets[0].getsockname()[1]
        return found


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or None if it is too large."""
    parts = []
    length = 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > LARGEST:
            return None
        if not message.get("more_body"):
            return b"".join(parts)
