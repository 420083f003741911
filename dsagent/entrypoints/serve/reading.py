"""/v1/verify and /v1/diff: what reads whole datasets, as streams of events."""

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from dsagent.api.v1 import DiffRequest, Place, VerifyRequest
from dsagent.core.datasets import is_reference
from dsagent.entrypoints.serve.answers import EVENTS
from dsagent.entrypoints.serve.asking import Anyone
from dsagent.entrypoints.serve.identity import Identity
from dsagent.entrypoints.serve.ownership import own_reference
from dsagent.entrypoints.serve.sources import checked_storage, opened_by
from dsagent.entrypoints.serve.state import State, state_of
from dsagent.entrypoints.serve.work import Verb, stream
from dsagent.service.diff import Side, diff
from dsagent.service.node import Node
from dsagent.service.results import VerifyResult
from dsagent.service.verify import verify

router = APIRouter(prefix="/v1", tags=["datasets"])


@router.post("/verify", response_class=StreamingResponse, responses={200: EVENTS})
async def verify_dataset(wanted: VerifyRequest, request: Request, who: Anyone) -> StreamingResponse:
    """Re-read every file of a version; with `repair`, fetch what is bad anew from where it came from.

    Server-sent events: `progress` once a second, then `result` or `problem`.
    """
    state = state_of(request)
    return stream(state, await to_thread.run_sync(_verification, wanted, who, state))


def _verification(wanted: VerifyRequest, who: Identity, state: State) -> Verb:
    reference = own_reference(wanted.reference, who)
    version = state.agent.node.find(reference)
    options = checked_storage(wanted.storage)
    if wanted.repair:
        options = state.allowed.place(version.source, options, who).options
    options = tuple(sorted((*options, *opened_by(options, wanted.credentials, who))))
    exact = f"{version.dataset}@{version.version}"

    def verified(node: Node) -> VerifyResult:
        found = verify(node, exact, wanted.repair, options)
        state.agent.evicted(found.evicted)
        return found

    return verified


@router.post("/diff", response_class=StreamingResponse, responses={200: EVENTS})
async def diff_places(wanted: DiffRequest, request: Request, who: Anyone) -> StreamingResponse:
    """By which files two sources, stores or cached datasets differ. Server-sent events as for verify."""
    state = state_of(request)
    a, b = _side(wanted.a, who, state), _side(wanted.b, who, state)
    return stream(state, lambda node: diff(node, a, b))


def _side(given: Place, who: Identity, state: State) -> Side:
    storage = checked_storage(given.storage)
    if is_reference(given.source):
        return Side(own_reference(given.source, who), is_cached=True)
    url, at, _ = given.source.rpartition("@xxh3:")
    options = state.allowed.place(url if at else given.source, storage, who).options
    return Side(given.source, tuple(sorted((*options, *opened_by(storage, given.credentials, who)))), is_cached=False)
