"""dsctl tasks and watch: what an agent is doing for whom."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from dsagent.core.datasets import LOCAL_NAMESPACE
from dsagent.core.errors import DsagentError
from dsagent.core.quantities import human_count, human_duration, human_size
from dsagent.core.tasks import DatasetInfo, TaskInfo
from dsagent.entrypoints.dsctl.options import example
from dsagent.entrypoints.dsctl.parser import Argument
from dsagent.entrypoints.dsctl.render import View, short, table

if TYPE_CHECKING:
    from dsagent.entrypoints.dsctl.session import Session


def tasks(session: "Session") -> None:
    """List an agent's tasks: who asked for which datasets, and how far they are."""
    found = session.agent.tasks()
    session.show(View(found, lambda _: _listed(found), [task.id for task in found]))


def watch(session: "Session", task: Annotated[str, Argument(metavar="TASK", help="A task's id.")]) -> None:
    """Follow a task until it is ready; if it fails, end with the exit code of its error."""
    from dsagent.adapters.agent_tasks import TaskMeter, errors_of  # noqa: PLC0415 - slow to import

    meter = TaskMeter(session.meter, "bring")
    said: set[str] = set()
    for info in session.agent.follow(task):
        meter.show(info)
        for text in (f"{one.name} waits: {one.error.detail}" for one in info.datasets if waits(one) and one.error):
            if text not in said:
                session.note(text)
                said.add(text)
    session.close()
    if info.state == "failed":
        first, *others = errors_of(info.datasets) or [DsagentError("bring", f"the task {task}", "it failed")]
        for other in others:
            session.note(str(other))
        raise first
    meter.end(info)
    session.show(View(info, lambda wide: _brought(info, wide), [f"{one.name}@{one.version}" for one in info.datasets]))


def waits(dataset: DatasetInfo) -> bool:
    """Whether a dataset waits for something that its error says."""
    return dataset.state == "pending" and dataset.error is not None


def _listed(found: Sequence[TaskInfo]) -> list[str]:
    headers = ["TASK", "OWNER", "STATE", "DATASETS", "PROGRESS", "RATE", "ETA"]
    return table(headers, [_row(task) for task in found])


def _row(task: TaskInfo) -> list[str]:
    coming = [one for one in task.datasets if one.state == "running"]
    return [
        task.id,
        task.owner.name if task.owner.namespace == LOCAL_NAMESPACE else f"{task.owner.namespace}/{task.owner.name}",
        f"{task.state}, prefetch" if task.prefetch else task.state,
        ", ".join(one.name or "?" for one in task.datasets),
        progress(coming),
        f"{human_size(sum(one.rate for one in coming))}/s" if coming else "",
        eta(coming),
    ]


def progress(coming: Sequence[DatasetInfo]) -> str:
    """How far datasets are that are under way; empty if there are none."""
    if not coming:
        return ""
    done, total = sum(one.bytes_done for one in coming), sum(one.bytes_total for one in coming)
    if not total:
        return human_size(done)
    return f"{100 * min(done, total) // total} % of {human_size(total)}"


def eta(coming: Sequence[DatasetInfo]) -> str:
    """When the last of them is expected; empty if that is not known."""
    known = [one.eta_seconds for one in coming if one.eta_seconds is not None]
    return human_duration(max(known)) if known else ""


def _brought(task: TaskInfo, wide: bool) -> list[str]:
    headers = ["DATASET", "VERSION", "OUTCOME", "FILES", "SIZE", "PATH"]
    rows = [
        [
            one.name,
            (one.version or "") if wide else short(one.version or ""),
            one.outcome or "",
            human_count(one.files),
            human_size(one.bytes),
            one.path or "",
        ]
        for one in task.datasets
    ]
    return table(headers, rows)


EXAMPLES = {
    "tasks": example("dsctl tasks -o json", "dsctl tasks --agent unix:///run/dsagent/agent.sock"),
    "watch": example("dsctl watch 5c7c64a5-51f2-4ed7-a4a5-1d1a9c1b0d6f --timeout 2h"),
}
