"""What a request may ask for: whose it is, which sources it may name, and how it becomes a task."""

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Request

from dsagent.agent.tasks import TaskSpec, Wanted
from dsagent.api.v1 import DatasetRequest, TaskRequest
from dsagent.core.datasets import LOCAL_NAMESPACE, check_namespace, check_version, dataset_key
from dsagent.core.errors import NotPermitted, UsageError
from dsagent.core.tasks import Owner
from dsagent.entrypoints.serve.authentication import IDENTITY
from dsagent.entrypoints.serve.identity import ADMINISTRATOR, Identity
from dsagent.entrypoints.serve.problems import Unavailable
from dsagent.entrypoints.serve.sources import checked_storage, opened_by
from dsagent.entrypoints.serve.state import State, state_of
from dsagent.service.origins import CacheRequest


async def asker(request: Request) -> Identity:
    """Who asks."""
    identity: Identity = request.scope[IDENTITY]
    return identity


async def ready_asker(request: Request) -> Identity:
    """Who asks an agent that is ready; raises Unavailable."""
    identity = await asker(request)
    state = state_of(request)
    if state.draining:
        raise Unavailable("ask", "the agent", "it is ending", "ask again: the next one goes on")
    if not state.agent.recovered:
        raise Unavailable("ask", "the agent", "it is bringing its root into order", "ask again in a moment")
    return identity


async def administrator(request: Request) -> Identity:
    """Who asks, if they may do anything; raises Unavailable, NotPermitted."""
    identity = await ready_asker(request)
    if not identity.is_administrator:
        raise NotPermitted("do", f"{request.method} {request.url.path}", "it is for administrators", "ask one")
    return identity


Identified = Annotated[Identity, Depends(asker)]
Anyone = Annotated[Identity, Depends(ready_asker)]
Administrator = Annotated[Identity, Depends(administrator)]


def task_spec(task_id: str, request: TaskRequest, who: Identity, state: State) -> TaskSpec:
    """The task that is asked for; raises NotPermitted if it is not the asker's to ask for, and UsageError."""
    owner = Owner(request.owner.namespace, request.owner.name, request.owner.uid)
    if not who.is_administrator and (owner.namespace, owner.uid, task_id) != (who.namespace, who.uid, who.uid):
        raise NotPermitted(
            "put", f"the task {task_id}", "it is not the asker's own", "a pod's task has its UID, and its namespace"
        )
    check_namespace(owner.namespace)
    wanted = tuple(wanted_dataset(one, owner.namespace, who, state) for one in request.datasets)
    if state.datasets is not None and (before := state.agent.spec(task_id)) is not None:
        wanted = _as_before(wanted, before.wanted)
    names = [one.request.name for one in wanted if one.request.name]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError("put", f"the task {task_id}", f"it names {', '.join(sorted(twice))} twice")
    waits = request.on_failure != "source"
    return TaskSpec(task_id, owner, wanted, request.keep_seconds, request.prefetch, waits)


def _as_before(wanted: tuple[Wanted, ...], before: tuple[Wanted, ...]) -> tuple[Wanted, ...]:
    """What a task asks for already, with the newest credentials, if it is the same datasets and versions: its Datasets
    may have been changed since the pod was bound.
    """

    def names(all_: tuple[Wanted, ...]) -> list[tuple[str, str | None, str | None]]:
        return [(one.request.namespace, one.request.name, one.request.version) for one in all_]

    if names(wanted) != names(before):
        return wanted
    return tuple(replace(one, request=old.request) for one, old in zip(wanted, before, strict=True))


def wanted_dataset(dataset: DatasetRequest, namespace: str, who: Identity, state: State) -> Wanted:
    """One dataset of a task in a namespace; raises NotPermitted, UsageError."""
    if state.datasets is not None and namespace != LOCAL_NAMESPACE:
        meaning = state.datasets.meaning(dataset, namespace)
        who = ADMINISTRATOR if meaning.trusted else who
        return wanted_from(meaning.request, meaning.namespace, who, state)
    if dataset.cluster:
        raise UsageError("put", f"the ClusterDataset {dataset.name}", "this agent is in no cluster", "give its source")
    return wanted_from(dataset, namespace, who, state)


def wanted_from(dataset: DatasetRequest, namespace: str, who: Identity, state: State) -> Wanted:
    """One dataset as it stands there; raises NotPermitted, UsageError."""
    if dataset.name is not None:
        dataset_key(dataset.name, namespace)  # it becomes the name of a link before anything is resolved
    if dataset.version is not None:
        check_version(dataset.version)
    options = dataset.options
    storage = checked_storage(options.storage)
    source = state.allowed.place(dataset.source, storage, who)
    request = CacheRequest(
        source,
        dataset.name,
        dataset.version,
        check=options.check,
        replace_source=options.replace_source,
        pack_to=state.allowed.place(options.pack_to, storage, who) if options.pack_to else None,
        skip_special=options.skip_special,
        namespace=namespace,
    )
    return Wanted(request, bool(dataset.credentials), opened_by(storage, dataset.credentials, who))
