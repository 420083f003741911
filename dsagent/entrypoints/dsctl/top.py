"""dsctl top: what an agent is doing now, again and again on a terminal."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from dsagent.core.errors import Interrupted
from dsagent.core.quantities import human_count, human_size
from dsagent.core.tasks import DatasetInfo, TaskInfo
from dsagent.entrypoints.dsctl.failure import Stopped
from dsagent.entrypoints.dsctl.options import example
from dsagent.entrypoints.dsctl.parser import Option
from dsagent.entrypoints.dsctl.render import Output, View, printable, table
from dsagent.entrypoints.dsctl.tasks import eta, progress, waits

if TYPE_CHECKING:
    from dsagent.adapters.agent_client import AgentVerbs
    from dsagent.entrypoints.dsctl.session import Session
    from dsagent.service.results import DiskInfo, LeaseInfo, LimitsInfo

SECONDS = 1.0


class Snapshot(NamedTuple):
    """All that is shown."""

    disk: "DiskInfo"
    limits: "LimitsInfo"
    tasks: "Sequence[TaskInfo]"
    leases: "Sequence[LeaseInfo]"


def top(
    session: "Session",
    once: Annotated[bool, Option(help="Show it once, as where there is no terminal.")] = False,
) -> None:
    """Show what an agent is doing: flights, rates, who waits for what, space, leases and limits. Ctrl-C ends it."""
    people = session.output in (Output.TABLE, Output.WIDE)
    if not once and people and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _live(session.agent)
        return
    snapshot = _take(session.agent)
    session.show(View(snapshot, lambda _: _lines(snapshot), [task.id for task in snapshot.tasks]))


def _live(agent: "AgentVerbs") -> None:
    from rich.live import Live  # noqa: PLC0415 - slow to import
    from rich.text import Text  # noqa: PLC0415

    with Live(screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.update(Text("\n".join(_lines(_take(agent)))), refresh=True)
                time.sleep(SECONDS)
        except Stopped as stopped:
            if not isinstance(stopped.error, Interrupted):
                raise


def _take(agent: "AgentVerbs") -> Snapshot:
    return Snapshot(agent.df(), agent.limits(), agent.tasks(), agent.leases())


def _lines(now: Snapshot) -> list[str]:
    return [*_summary(now), *_flights(now.tasks), *_waiting(now.tasks), *_leases(now.leases)]


def _summary(now: Snapshot) -> list[str]:
    disk, limits = now.disk, now.limits
    states = [
        f"{count} {state}" for state in ("running", "pending", "ready", "failed") if (count := _count(now, state))
    ]
    rate = sum(one.rate for one in _coming(now.tasks).values())
    bandwidth = f"{human_size(limits.bandwidth)}/s" if limits.bandwidth else "any bandwidth"
    space = f"{human_size(disk.used)} used, {human_size(disk.reserved)} reserved, {human_size(disk.free)} free"
    return [
        f"root    {printable(disk.root)}, {human_count(disk.datasets)} datasets",
        f"space   {space} of {human_size(disk.capacity)}",
        f"tasks   {', '.join(states) or 'none'}; {human_size(rate)}/s",
        f"limits  {bandwidth}, {limits.slots} jobs and {limits.tasks} tasks at once",
    ]


def _count(now: Snapshot, state: str) -> int:
    return sum(task.state == state for task in now.tasks)


def _coming(tasks: Sequence[TaskInfo]) -> dict[tuple[str, str], DatasetInfo]:
    """What is under way, by namespace and name: tasks that need the same share a flight."""
    return {(t.owner.namespace, one.name): one for t in tasks for one in t.datasets if one.state == "running"}


def _flights(tasks: Sequence[TaskInfo]) -> list[str]:
    coming = _coming(tasks)
    if not coming:
        return []
    rows = []
    for (namespace, name), one in coming.items():
        sharing = sum(t.owner.namespace == namespace and any(d.name == name for d in t.datasets) for t in tasks)
        files = f"{human_count(one.files_done)} of {human_count(one.files_total)}"
        rows.append([name, progress([one]), files, f"{human_size(one.rate)}/s", eta([one]), str(sharing)])
    return ["", *table(["FLIGHT", "PROGRESS", "FILES", "RATE", "ETA", "TASKS"], rows)]


def _waiting(tasks: Sequence[TaskInfo]) -> list[str]:
    rows = [[t.id, one.name, one.error.detail] for t in tasks for one in t.datasets if waits(one) and one.error]
    return ["", *table(["TASK", "DATASET", "WAITS"], rows)] if rows else []


def _leases(leases: "Sequence[LeaseInfo]") -> list[str]:
    by_dataset: dict[str, list[str]] = {}
    for info in leases:
        by_dataset.setdefault(info.dataset, []).append(info.owner)
    rows = [[dataset, str(len(owners)), ", ".join(sorted(set(owners)))] for dataset, owners in by_dataset.items()]
    return ["", *table(["LEASED", "LEASES", "OWNERS"], rows)] if rows else []


EXAMPLES = {"top": example("dsctl top", "dsctl top --once --agent https://node7:8443")}
