"""/v1/leases: who uses what, until when."""

import asyncio
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request, Response

from dsagent.api.v1 import Label, LeaseRequest, RenewRequest
from dsagent.core.errors import NotCached
from dsagent.entrypoints.serve.answers import as_json
from dsagent.entrypoints.serve.asking import Anyone
from dsagent.entrypoints.serve.handover import SECONDS
from dsagent.entrypoints.serve.identity import Identity
from dsagent.entrypoints.serve.ownership import lease_owner, own_reference, sees_lease
from dsagent.entrypoints.serve.state import State, state_of
from dsagent.service.leases import add, list_leases, release, renew
from dsagent.service.results import GrantedLease, LeaseInfo

router = APIRouter(prefix="/v1", tags=["leases"])

Wanted = Annotated[str, Path(min_length=1, max_length=253, description="A lease's id, NAME or NAME@VERSION.")]
Owned = Annotated[Label | None, Query(description="Whose, where a dataset has several.")]


@router.get("/leases", response_model=list[LeaseInfo])
def get_leases(request: Request, who: Anyone) -> Response:
    """All living leases that are the asker's to see; those without an end are held by processes or tasks."""
    return as_json([info for info in list_leases(state_of(request).agent.node) if sees_lease(who, info)])


@router.post("/leases", response_model=GrantedLease)
async def add_lease(wanted: LeaseRequest, request: Request, who: Anyone) -> Response:
    """Keep a dataset for `seconds`, or, if that is null, as long as a process lives: that opens `file`, below the root,
    to read it, takes a shared flock on it, and confirms; until then the agent holds the lease, for up to 60 s.
    """
    state = state_of(request)
    reference, owner = own_reference(wanted.reference, who), lease_owner(wanted.owner, who)
    node = state.agent.node
    if wanted.seconds is not None:
        return as_json(
            GrantedLease(**vars(await to_thread.run_sync(add, node, reference, owner, wanted.seconds)), file=None)
        )
    info = await to_thread.run_sync(state.handovers.begin, node, reference, owner)
    asyncio.get_running_loop().call_later(SECONDS, state.handovers.end, info.id)
    return as_json(info)


# Before those whose ids may have slashes.
@router.put("/leases/{lease_id:lease}/held", response_model=LeaseInfo)
def confirm_lease(lease_id: Annotated[str, Path(pattern="^[0-9a-f]{16}$")], request: Request, who: Anyone) -> Response:
    """The asker's process holds the lease now; raises NotCached if it was too late."""
    state = state_of(request)
    info = next((one for one in list_leases(state.agent.node) if one.id == lease_id and sees_lease(who, one)), None)
    if info is None:
        raise _none(lease_id)
    state.handovers.end(lease_id)
    return as_json(info)


@router.put("/leases/{wanted:path}", response_model=LeaseInfo)
def renew_lease(wanted: Wanted, until: RenewRequest, request: Request, who: Anyone) -> Response:
    """Let a lease end `seconds` from now."""
    state = state_of(request)
    info = renew(state.agent.node, *_own(wanted, until.owner, who, state), until.seconds)
    state.agent.wake()
    return as_json(info)


@router.delete("/leases/{wanted:path}", response_model=LeaseInfo)
def end_lease(wanted: Wanted, request: Request, who: Anyone, owner: Owned = None) -> Response:
    """End a lease."""
    state = state_of(request)
    info = release(state.agent.node, *_own(wanted, owner, who, state))
    state.agent.wake()
    return as_json(info)


def _own(wanted: str, owner: str | None, who: Identity, state: State) -> tuple[str, str | None]:
    """What `renew` and `release` take, for a lease that is the asker's; raises NotCached."""
    if who.is_administrator:
        return wanted, owner
    for info in list_leases(state.agent.node):
        if info.id == wanted:
            if sees_lease(who, info):
                return wanted, owner
            raise _none(wanted)
    return own_reference(wanted, who), lease_owner("", who)


def _none(wanted: str) -> NotCached:
    return NotCached("find", f"a lease on {wanted}", "nobody has one", "see them all with: dsctl lease ls")
