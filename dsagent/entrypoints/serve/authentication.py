"""Who asks is found out first of all: before the rest of a request is read."""

import logging
from collections.abc import Callable

from anyio import CapacityLimiter, to_thread
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from dsagent.contract import TOKEN_HEADER
from dsagent.core.errors import DsagentError, NotPermitted, UsageError
from dsagent.entrypoints.serve.identity import Identity, identify
from dsagent.entrypoints.serve.problems import Unauthenticated, Unavailable, answer
from dsagent.entrypoints.serve.state import State

log = logging.getLogger("dsagent")

OPEN = frozenset({"/healthz", "/readyz"})
IDENTITY = "dsagent.identity"
AT_ONCE = 16

_limiter = CapacityLimiter(AT_ONCE)


class Authentication:
    """Passes on the requests of those who are known, with who it is, and those for health."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on or refuses it."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            try:
                scope[IDENTITY] = await self._asker(HTTPConnection(scope))
            except DsagentError as error:
                await answer(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _asker(self, asking: HTTPConnection) -> Identity:
        """Who asks; where somebody has to be asked for it, in a thread."""
        verifier, peers = self._state.verifier, self._state.peers
        try:
            return _known(asking, verifier.recall, peers)
        except Unauthenticated:
            if _authorization(asking) is None:
                raise
        return await to_thread.run_sync(_known, asking, verifier.identify, peers, limiter=_limiter)


def _known(asking: HTTPConnection, owner: Callable[[str], Identity | None], peers: frozenset[int]) -> Identity:
    """Who asks; raises Unauthenticated, and Unavailable if that cannot be told now."""
    client = asking.client.host if asking.client else ""
    try:
        identity = identify(_authorization(asking), client, owner, peers)
    except NotPermitted as error:
        raise Unauthenticated(error.action, error.subject, error.cause, error.hint) from None
    except UsageError as error:
        log.error("nobody's token can be looked up: %s", error)  # noqa: TRY400 - its cause says all
        raise Unavailable("ask", "the agent", "its tokens cannot be read", "see the agent's log") from None
    if identity is None:
        raise Unauthenticated("ask", "the agent", "there is no token", "send it as Authorization: Bearer TOKEN")
    return identity


def _authorization(asking: HTTPConnection) -> str | None:
    """The header that shows a token, or None; an API server's proxy takes the usual one for itself."""
    token = asking.headers.get(TOKEN_HEADER)
    return f"Bearer {token}" if token is not None else asking.headers.get("authorization")
