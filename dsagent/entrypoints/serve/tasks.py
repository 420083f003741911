"""/v1/tasks and /v1/events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from dsagent.agent.subject import about
from dsagent.api.v1 import TaskId, TaskRequest
from dsagent.core.tasks import TaskInfo
from dsagent.entrypoints.serve.answers import EVENTS, as_event, as_json
from dsagent.entrypoints.serve.asking import Anyone, task_spec
from dsagent.entrypoints.serve.identity import Identity
from dsagent.entrypoints.serve.ownership import may_see, own_task
from dsagent.entrypoints.serve.state import State, state_of
from dsagent.entrypoints.serve.work import shortly

router = APIRouter(prefix="/v1", tags=["tasks"])

TICK_SECONDS = 1.0
# What a PUT waits, so that what is here already is ready in the answer.
SETTLE_SECONDS = 0.02
BEATS = 15  # ticks without a word after which a reader is told that the agent is still there

Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for the task's state to change.")]


@router.put("/tasks/{task_id}", response_model=TaskInfo)
async def put_task(task_id: TaskId, wanted: TaskRequest, request: Request, who: Anyone) -> Response:
    """Make the datasets of a task present. The same again finds the same task; one that failed is tried again."""
    state = state_of(request)
    info = await shortly(_begun, task_id, wanted, who, state)
    return as_json(await _changed(info, who, state, SETTLE_SECONDS))


def _begun(task_id: str, wanted: TaskRequest, who: Identity, state: State) -> TaskInfo:
    spec = task_spec(task_id, wanted, who, state)
    with about(task=task_id, pod=f"{spec.owner.namespace}/{spec.owner.name}"):
        return state.agent.put(spec)


async def _changed(info: TaskInfo, who: Identity, state: State, seconds: float) -> TaskInfo:
    """A task that is under way: as it is when its state has changed, or when that many seconds have passed."""
    if info.state not in ("pending", "running"):
        return info
    before = info.state
    deadline = asyncio.get_running_loop().time() + seconds
    with state.hub.watching(info.id) as changed:
        while not state.draining and (info := own_task(info.id, who, state)).state == before:
            try:
                await asyncio.wait_for(changed.wait(), deadline - asyncio.get_running_loop().time())
            except TimeoutError:
                break
            changed.clear()
    return info


@router.get("/tasks/{task_id}", response_model=TaskInfo)
async def get_task(task_id: TaskId, request: Request, who: Anyone, wait: Wait = 0) -> Response:
    """Where a task stands; with `wait`, when its state has changed or that many seconds have passed."""
    state = state_of(request)
    return as_json(await _changed(own_task(task_id, who, state), who, state, wait))


@router.get("/tasks", response_model=list[TaskInfo])
def list_tasks(request: Request, who: Anyone) -> Response:
    """All tasks that are the asker's to see."""
    return as_json([info for info in state_of(request).agent.tasks() if may_see(who, info.owner)])


@router.delete("/tasks/{task_id}", status_code=204)
def delete_task(task_id: TaskId, request: Request, who: Anyone) -> None:
    """End a task and its leases; flights that nobody else needs are cancelled."""
    state = state_of(request)
    own_task(task_id, who, state)
    state.agent.delete(task_id)


@router.get("/events", response_class=StreamingResponse, responses={200: EVENTS})
async def events(
    request: Request,
    who: Anyone,
    task: Annotated[TaskId | None, Query(description="Only of this task.")] = None,
    last_event_id: Annotated[int | None, Header(ge=0, lt=1 << 63)] = None,
) -> StreamingResponse:
    """Server-sent events: `task` whenever a task's state changes, `deleted`, `evicted`, `limits`; `progress`, without
    an id, once a second for tasks under way. With Last-Event-ID, what happened since; `lost` comes before it if that
    is not known whole, as after a restart of the agent.
    """
    state = state_of(request)
    return StreamingResponse(_stream(state, who, task, last_event_id), media_type="text/event-stream")


async def _stream(state: State, who: Identity, task: str | None, after: int | None) -> AsyncIterator[bytes]:
    quiet = 0
    yield b": dsagent\n\n"
    async for event in state.hub.events(after, TICK_SECONDS):
        if event is not None:
            if event.kind == "lost":
                yield as_event("lost", event.document)
            elif task in (None, event.task) and may_see(who, event.owner):
                yield as_event(event.kind, event.document, event.id)
            continue
        running = [info for info in state.agent.tasks("running") if task in (None, info.id)]
        for info in running:
            if may_see(who, info.owner):
                yield as_event("progress", info)
        quiet = 0 if running else quiet + 1
        if quiet % BEATS == 1:
            yield b": still here\n\n"
