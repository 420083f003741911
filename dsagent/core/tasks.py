"""A task as it is shown, and what its datasets' states make of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dsagent.core.eviction import Evicted
from dsagent.core.problem import Problem

State = Literal["pending", "running", "ready", "failed"]


@dataclass(frozen=True)
class Owner:
    """Whose task it is: a pod, or a person; `uid` is a pod's."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class DatasetInfo:
    """Where one dataset of a task stands. `error` says why it failed, or what a pending one waits for.

    `bytes_total` and `files_total` are what is to be read, 0 as long as that is not known; `rate` is in bytes a
    second. From `outcome` on, the fields say how it came here and are empty before it is ready; `path` is where it
    lies on the node.
    """

    name: str
    version: str | None
    state: State
    path: str | None
    bytes_total: int
    bytes_done: int
    files_total: int
    files_done: int
    rate: float
    eta_seconds: float | None
    error: Problem | None
    outcome: Literal["hit", "fetched", "updated"] | None
    files: int
    bytes: int
    fetched_bytes: int
    reused_files: int
    skipped_special: int
    evicted: Sequence[Evicted]
    seconds: float


@dataclass(frozen=True)
class TaskInfo:
    """A task: all datasets that one pod asked for."""

    id: str
    owner: Owner
    state: State
    prefetch: bool
    datasets: Sequence[DatasetInfo]


def task_state(datasets: Iterable[State]) -> State:
    """Ready when all datasets are; running when one is under way; else failed when one is, pending if none."""
    states = set(datasets)
    if states == {"ready"}:
        return "ready"
    if "running" in states:
        return "running"
    return "failed" if "failed" in states else "pending"
