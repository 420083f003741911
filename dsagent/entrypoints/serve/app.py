"""The agent's HTTP app."""

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsagent import __version__
from dsagent.api import v1
from dsagent.core.errors import UsageError
from dsagent.entrypoints.serve import datasets, health, leases, metrics, openapi, reading, tasks, upkeep
from dsagent.entrypoints.serve.metrics import HttpMetrics, measure
from dsagent.entrypoints.serve.openapi import operation_id
from dsagent.entrypoints.serve.problems import answer, handle_problems
from dsagent.entrypoints.serve.state import State

MAX_BODY = 1 << 20


def make_app(state: State | None) -> FastAPI:
    """The app; without a state it can only tell what it offers."""
    app = FastAPI(
        title="dsagent",
        version=__version__,
        description=v1.__doc__ or "",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    app.state.shared = state
    handle_problems(app)
    parts = (health, tasks, datasets, reading, leases, upkeep, metrics, openapi)
    for part in parts:
        app.include_router(part.router)
    app.state.routes = [route for part in parts for route in part.router.routes]
    app.add_middleware(BodyLimit)
    if state is not None:
        measure(state)
        app.add_middleware(HttpMetrics, registry=state.registry)
    return app


class BodyLimit:
    """Refuses requests with more than MAX_BODY bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, as long as it is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        message: Message = {"type": "http.request", "more_body": True}
        while message["type"] == "http.request" and message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
            if len(body) > MAX_BODY:
                error = UsageError("read", scope["path"], f"the request has more than {MAX_BODY} bytes")
                await answer(error, 413)(scope, receive, send)
                return
        given = False

        async def whole() -> Message:
            nonlocal given
            if given or message["type"] != "http.request":
                return message if not given else await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, whole, send)
