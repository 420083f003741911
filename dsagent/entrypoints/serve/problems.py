"""Errors as HTTP answers: RFC 9457 problems with the engine's class names."""

import logging
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from dsagent.agent.secrets import remembered, trace, without
from dsagent.core.errors import (
    BadStore,
    DigestMismatch,
    DsagentError,
    InsufficientStorage,
    InUse,
    NotCached,
    NotPermitted,
    SourceChanged,
    SourceError,
    TimedOut,
    UsageError,
)
from dsagent.entrypoints.documents import as_document

log = logging.getLogger("dsagent")

MEDIA_TYPE = "application/problem+json"

_STATUS: dict[type[DsagentError], int] = {
    UsageError: 400,
    NotPermitted: 403,
    NotCached: 404,
    InUse: 409,
    SourceChanged: 409,
    SourceError: 424,
    BadStore: 424,
    DigestMismatch: 424,
    TimedOut: 504,
    InsufficientStorage: 507,
}


class Unauthenticated(NotPermitted):
    """It is not known who asks."""

    title = "Who are you?"


class Unavailable(DsagentError):
    """The agent is starting or ending."""

    title = "Not now"


def answer(error: DsagentError, status: int | None = None) -> Response:
    """The HTTP answer to an error."""
    if status is None:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    headers = {}
    if isinstance(error, Unauthenticated):
        status, headers = 401, {"WWW-Authenticate": 'Bearer realm="dsagent"'}
    if isinstance(error, Unavailable):
        status, headers = 503, {"Retry-After": "1"}
    document = {**as_document(error.problem()), "status": status}
    return Response(orjson.dumps(document), status, headers, MEDIA_TYPE)


def as_error(error: Exception, secrets: list[str]) -> DsagentError:
    """The error itself if it is one of ours; any other is a bug, and goes into the log. Both without the secrets."""
    if isinstance(error, DsagentError):
        return without(error, secrets)
    log.error("a request failed: %s", trace(error, secrets))
    return DsagentError("answer", "a request", type(error).__name__, "this is a bug in dsagent; see the agent's log")


def handle_problems(app: FastAPI) -> None:
    """Lets the app answer every error as a problem."""

    @app.exception_handler(DsagentError)
    def ours(_request: Request, error: DsagentError) -> Response:
        return answer(as_error(error, remembered()))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(UsageError("read", _request(request), _first(error), "see /openapi.json"), 422)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        kind = NotCached if error.status_code == 404 else UsageError
        given = answer(kind("answer", _request(request), str(error.detail)), error.status_code)
        given.headers.update(error.headers or {})
        if error.status_code == 405:
            given.headers["Allow"] = ", ".join(sorted(_methods(request)))
        return given

    @app.exception_handler(Exception)
    def broken(_request: Request, error: Exception) -> Response:
        return answer(as_error(error, remembered()))


def _methods(request: Request) -> set[str]:
    """What can be done with a path: each route knows its own method only."""
    path = request.url.path
    found = [route for route in request.app.state.routes if route.path_regex.match(path)]
    return {method for route in found if route.path == found[0].path for method in route.methods}


def _request(request: Request) -> str:
    return f"{request.method} {request.url.path}"


def _first(error: RequestValidationError) -> str:
    """What is wrong first, without the value: it may be a secret."""
    found: dict[str, Any] = error.errors()[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}"
