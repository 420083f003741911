"""Whose things are: what an asker may see and name."""

from dsagent.core.datasets import LOCAL_NAMESPACE, split_reference
from dsagent.core.errors import NotCached
from dsagent.core.tasks import Owner, TaskInfo
from dsagent.entrypoints.serve.identity import Identity
from dsagent.entrypoints.serve.state import State
from dsagent.service.results import LeaseInfo


def may_see(who: Identity, owner: Owner | None) -> bool:
    """Whether a task, or what happened, is the asker's to see."""
    return who.is_administrator or (owner is not None and (owner.namespace, owner.uid) == (who.namespace, who.uid))


def own_task(task_id: str, who: Identity, state: State) -> TaskInfo:
    """A task that is the asker's to see; raises NotCached, for those of others too."""
    info = state.agent.get(task_id)
    if not may_see(who, info.owner):
        raise NotCached("find", f"the task {task_id}", "there is none", "see them with: dsctl tasks")
    return info


def namespace_of(who: Identity) -> str:
    """The namespace of a name that stands alone."""
    return LOCAL_NAMESPACE if who.is_administrator else who.namespace


def own_reference(text: str, who: Identity) -> str:
    """A reference with its namespace; raises UsageError, and NotCached for what is not the asker's to see."""
    key, version = split_reference(text, namespace_of(who))
    if not sees_dataset(who, str(key)):
        raise NotCached("find", text, "it is not here", "dsctl ls shows what is")
    return f"{key}@{version}" if version else str(key)


def sees_dataset(who: Identity, dataset: str) -> bool:
    """Whether a dataset, as results name it, is the asker's to see."""
    return who.is_administrator or dataset.startswith(f"{who.namespace}/")


def lease_owner(given: str, who: Identity) -> str:
    """In whose name a lease is made: a pod's are its own, whatever it sends."""
    return given if who.is_administrator else f"pod {who.namespace}/{who.uid}"


def sees_lease(who: Identity, lease: LeaseInfo) -> bool:
    """Whether a lease is the asker's: made in its name, or its task's."""
    return who.is_administrator or lease.owner == lease_owner("", who) or lease.id == f"pods/{who.uid}"
