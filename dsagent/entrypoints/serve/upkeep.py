"""/v1/disk, /v1/doctor and /v1/limits: the node's room, its health, and what all work on it shares."""

from fastapi import APIRouter, Request, Response

from dsagent.api.v1 import LimitsRequest
from dsagent.entrypoints.serve.answers import as_json
from dsagent.entrypoints.serve.asking import Administrator
from dsagent.entrypoints.serve.state import State, state_of
from dsagent.entrypoints.serve.work import in_background
from dsagent.service.doctor import doctor
from dsagent.service.listing import df
from dsagent.service.results import DiskInfo, Finding, LimitsInfo

router = APIRouter(prefix="/v1", tags=["node"])


@router.get("/disk", response_model=DiskInfo)
def get_disk(request: Request, _who: Administrator) -> Response:
    """How much room there is."""
    return as_json(df(state_of(request).agent.node))


@router.get("/doctor", response_model=list[Finding])
async def look(request: Request, _who: Administrator) -> Response:
    """Whether the root is fit for its work, and what to do."""
    return as_json(await in_background(doctor, state_of(request).agent.node, False))


@router.post("/doctor/rebuild", response_model=list[Finding])
async def rebuild(request: Request, _who: Administrator) -> Response:
    """Make the catalog anew from what is on the disk."""
    return as_json(await in_background(doctor, state_of(request).agent.node, True))


@router.get("/limits", response_model=LimitsInfo)
def get_limits(request: Request, _who: Administrator) -> Response:
    """What all work of the agent shares."""
    return as_json(_limits(state_of(request)))


@router.patch("/limits", response_model=LimitsInfo)
def change_limits(wanted: LimitsRequest, request: Request, _who: Administrator) -> Response:
    """Change what may be changed while the agent runs; work under way keeps it from now on."""
    state = state_of(request)
    state.throttle.rate = wanted.bandwidth
    state.agent.events.add("limits", _limits(state))
    return as_json(_limits(state))


def _limits(state: State) -> LimitsInfo:
    shares = state.agent.shares
    return LimitsInfo(int(state.throttle.rate), shares.slots, shares.tasks)
