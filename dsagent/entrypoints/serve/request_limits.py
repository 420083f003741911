"""How large a request may be."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsagent.core.errors import UsageError
from dsagent.entrypoints.serve.problems import answer

MAX_BODY = 1 << 20
MAX_HEAD = 32 << 10  # path, query and headers; a token has some 2 KiB


class RequestLimits:
    """Refuses requests with more than MAX_HEAD bytes before the body, or more than MAX_BODY bytes in it; passes others
    on when they are here whole.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, as long as it is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _size(scope) > MAX_HEAD:
            await answer(_too_large("its head", MAX_HEAD), 431)(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        body = None if length.isdigit() and int(length) > MAX_BODY else await _whole(receive)
        if body is None:
            await answer(_too_large("its body", MAX_BODY), 413)(scope, receive, send)
            return
        if body["type"] == "http.disconnect":  # it went away before it had said all
            return
        given = False

        async def once() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return body

        await self._app(scope, once, send)


async def _whole(receive: Receive) -> Message | None:
    """The body in one message, the client's end, or None if the body is too large."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return message
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY:
            return None
    return {"type": "http.request", "body": bytes(body), "more_body": False}


def _size(scope: Scope) -> int:
    head = len(scope["raw_path"]) + len(scope["query_string"])
    return head + sum(len(name) + len(value) for name, value in scope["headers"])


def _too_large(what: str, most: int) -> UsageError:
    return UsageError("read", "a request", f"{what} has more than {most} bytes")
