"""The extender and the rail webhook over HTTP. Filter and prioritize read and write JSON themselves: FastAPI's models
would take longer than the decision. All of it runs in the event loop's thread, which owns the view; nothing in one of
these two waits for anything.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.responses import JSONResponse

from scheduler_plugin import protocol
from scheduler_plugin.decisions import Filtered, Scored
from scheduler_plugin.explain import explanation
from scheduler_plugin.filters import Refusals, refuse
from scheduler_plugin.rail.admission import Admission, schedule
from scheduler_plugin.scoring import score
from scheduler_plugin.state import State

log = logging.getLogger("scheduler_plugin")

JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
MOST_REVIEW_BYTES = 8 << 20  # an API server takes objects of up to 3 MiB


def make_app(state: State, admission: Admission | None = None) -> FastAPI:
    """The app over a state; without an admission there is no webhook."""
    app = FastAPI(title="dsagent scheduler plugin", docs_url=None, redoc_url=None)

    @app.post("/filter")
    async def filter_(request: Request) -> Response:
        return await _answer(state, "filter", request, filter_nodes)

    @app.post("/prioritize")
    async def prioritize(request: Request) -> Response:
        return await _answer(state, "prioritize", request, prioritize_nodes)

    @app.get("/explain")
    async def explain(pod: str, namespace: str = "default", all_nodes: bool = False) -> JSONResponse:
        found = explanation(state, namespace, pod, all_nodes=all_nodes)
        return JSONResponse(found, 404 if "problem" in found else 200)

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        if missing := state.unsynced():
            return Response(f"not yet listed: {', '.join(missing)}\n", 503, media_type="text/plain")
        return Response("ok\n", media_type="text/plain")

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(state.metrics.text(state.view.counts()), media_type=TEXT)

    if admission is not None:
        _add_webhook(app, state, admission)
    return app


def _add_webhook(app: FastAPI, state: State, admission: Admission) -> None:
    async def scheduled(review: Mapping[str, Any]) -> Mapping[str, Any]:
        return schedule(review)

    @app.post("/mutate/rail")
    async def rail(request: Request) -> Response:
        return await _review(state, "rail", request, admission.rail)

    @app.post("/mutate/schedule")
    async def mark(request: Request) -> Response:
        return await _review(state, "schedule", request, scheduled)


def filter_nodes(state: State, body: bytes) -> bytes:
    """The answer to a filter request; without a view that is whole it refuses nothing."""
    try:
        asked = state.reader.read(body)
    except protocol.BadRequest as error:
        state.metrics.failed("filter", "request")
        return protocol.filter_error(str(error))
    needs, nodes = state.view.needs(asked.pod), state.view.columns(asked.names)
    refusals = refuse(needs, nodes, state.settings.filters) if not state.unsynced() else Refusals()
    for check in refusals.failed:
        state.metrics.failed("filter", check)
    state.metrics.refused(len(refusals.unresolvable))
    refused = {asked.names[place]: why for place, why in refusals.unresolvable.items()}
    state.decisions.filter(Filtered(datetime.now(UTC), needs, nodes.nodes, asked.written, refused))
    return protocol.filtered(asked, refusals.unresolvable)


def prioritize_nodes(state: State, body: bytes) -> bytes:
    """The answer to a prioritize request."""
    try:
        asked = state.reader.read(body)
    except protocol.BadRequest:
        state.metrics.failed("prioritize", "request")
        return b"[]"
    needs, nodes = state.view.needs(asked.pod), state.view.columns(asked.names)
    found = score(needs, nodes, state.terms)
    for term in found.failed:
        state.metrics.failed("prioritize", term)
    scores = found.scores.tolist()
    state.decisions.score(Scored(datetime.now(UTC), needs, nodes.nodes, asked.written, scores))
    return protocol.prioritized(asked.written, scores)


async def _answer(state: State, verb: str, request: Request, decide: Callable[[State, bytes], bytes]) -> Response:
    body = bytearray()
    async for part in request.stream():
        if len(body) <= protocol.MOST_BYTES:  # what is longer is read to its end all the same, and then is no JSON
            body += part
    begun = time.perf_counter()
    try:
        answer = decide(state, bytes(body))
    except Exception as error:
        log.exception("%s could not be answered", verb)
        state.metrics.failed(verb, "answer")
        answer = protocol.filter_error(repr(error)) if verb == "filter" else b"[]"
    state.metrics.answered(verb, time.perf_counter() - begun)
    return Response(answer, media_type=JSON)


async def _review(
    state: State, verb: str, request: Request, decide: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
) -> Response:
    body = await request.body()
    begun = time.perf_counter()
    try:
        if len(body) > MOST_REVIEW_BYTES:
            raise ValueError(f"a review has at most {MOST_REVIEW_BYTES} bytes")
        answer = orjson.dumps(await decide(orjson.loads(body)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log.exception("a review for %s cannot be understood", verb)
        state.metrics.failed(verb, "request")
        return Response(f"this is no AdmissionReview of a pod: {error!r}\n", 400, media_type="text/plain")
    state.metrics.answered(verb, time.perf_counter() - begun)
    return Response(answer, media_type=JSON)
