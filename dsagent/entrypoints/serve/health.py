"""/healthz and /readyz: what is answered without knowing who asks."""

from fastapi import APIRouter, Request, Response

from dsagent.entrypoints.serve.state import state_of

router = APIRouter(tags=["health"])


@router.get("/healthz", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def healthz() -> Response:
    """The process answers."""
    return Response("ok\n", media_type="text/plain")


@router.get(
    "/readyz",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}}},
        503: {"description": "It is starting or ending.", "content": {"text/plain": {}}},
    },
)
async def readyz(request: Request) -> Response:
    """The agent takes tasks: it has brought its root into order and is not ending."""
    state = state_of(request)
    if state.agent.recovered and not state.draining:
        return Response("ok\n", media_type="text/plain")
    return Response("recovering\n" if not state.draining else "draining\n", 503, media_type="text/plain")
