"""/v1/datasets, /v1/plan and /v1/evict: what is here, what a caching would do, and what goes."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from dsagent.api.v1 import EvictRequest, Label, PlanRequest
from dsagent.core.errors import UsageError
from dsagent.entrypoints.serve.answers import as_json
from dsagent.entrypoints.serve.asking import Administrator, Anyone, wanted_dataset
from dsagent.entrypoints.serve.ownership import namespace_of, own_reference, sees_dataset
from dsagent.entrypoints.serve.state import State, state_of
from dsagent.entrypoints.serve.work import in_background
from dsagent.service.cache import plan_cache
from dsagent.service.evict import evict, evict_need
from dsagent.service.listing import ls, path
from dsagent.service.results import CachedInfo, CachePlan, EvictResult

router = APIRouter(prefix="/v1", tags=["datasets"])

Reference = Annotated[Label | None, Query(description="NAME or NAME@VERSION: this one only; counts as a use.")]


@router.get("/datasets", response_model=list[CachedInfo])
def list_datasets(request: Request, who: Anyone, reference: Reference = None) -> Response:
    """The versions on this node that are the asker's to see."""
    node = state_of(request).agent.node
    where = path(node, own_reference(reference, who)) if reference is not None else None
    return as_json([info for info in ls(node) if sees_dataset(who, info.dataset) and where in (None, info.path)])


@router.post("/plan", response_model=CachePlan)
async def plan(wanted: PlanRequest, request: Request, who: Anyone) -> Response:
    """What making a dataset present would do, without doing it."""
    state = state_of(request)
    dataset = wanted_dataset(wanted.dataset, namespace_of(who), who, state)
    return as_json(await in_background(plan_cache, state.agent.node, dataset.complete()))


@router.post("/evict", response_model=EvictResult)
async def evict_datasets(wanted: EvictRequest, request: Request, who: Administrator) -> Response:
    """Remove one dataset, or as many as it takes until `need` bytes are free. What is in use stays."""
    if (wanted.reference is None) == (wanted.need is None):
        raise UsageError("evict", "datasets", "it takes a reference or need, and not both")
    if wanted.need is not None and wanted.force:
        raise UsageError("evict", "datasets", "force goes with a reference only")
    reference = own_reference(wanted.reference, who) if wanted.reference is not None else ""
    return as_json(await in_background(_evict, state_of(request), wanted, reference))


def _evict(state: State, wanted: EvictRequest, reference: str) -> EvictResult:
    node = state.agent.node
    if wanted.need is not None:
        result = evict_need(node, wanted.need, wanted.dry_run)
    else:
        result = evict(node, reference, wanted.force, wanted.dry_run)
    if not wanted.dry_run:
        state.agent.evicted(result.evicted)
    return result
