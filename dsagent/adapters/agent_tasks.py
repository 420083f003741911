"""One task of an agent, asked for and followed to its end, over the agent's restarts too."""

import contextlib
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dsagent.adapters.agent_answers import result
from dsagent.adapters.agent_http import AgentHttp, Away
from dsagent.adapters.agent_places import place, whole
from dsagent.contract import CLUSTER_NAMESPACE, ExitCode
from dsagent.core.errors import AgentUnreachable, DsagentError, NotCached, error_of
from dsagent.core.tasks import DatasetInfo, TaskInfo

if TYPE_CHECKING:
    from dsagent.service.node import Meter
    from dsagent.service.origins import CacheRequest

# A client that was killed cannot delete its task: what it has brought is kept for so long, for its next attempt.
KEEP_SECONDS = 60.0
WAIT_SECONDS = 30.0  # at most 60
SHOWN_SECONDS = 0.3  # between two looks at the progress, while somebody looks
GRACE_SECONDS = 30.0
PARTING_SECONDS = 0.5  # Ctrl-C is to end it within a second


def path_of(task_id: str) -> str:
    """A task's path."""
    return f"/v1/tasks/{quote(task_id, safe='')}"


def task_request(request: "CacheRequest", environ: Mapping[str, str]) -> dict[str, Any]:
    """The TaskRequest for one dataset, with the credentials that this user's environment has for its storage."""
    return {
        "owner": {"namespace": request.namespace, "name": user_name(), "uid": ""},
        "datasets": [dataset_request(request, environ)],
        "keep_seconds": KEEP_SECONDS,
    }


def dataset_request(request: "CacheRequest", environ: Mapping[str, str]) -> dict[str, Any]:
    """The DatasetRequest for what is to be made present."""
    source = place(request.source, environ)
    storage, credentials = source.storage, source.credentials
    if request.pack_to is not None:
        store = place(request.pack_to, environ)
        storage, credentials = store.storage | storage, store.credentials | credentials
    options = {
        "check": request.check,
        "replace_source": request.replace_source,
        "skip_special": request.skip_special,
        "pack_to": request.pack_to and whole(request.pack_to.url),
        "storage": storage,
    }
    return {
        "name": request.name,
        "source": source.source,
        "version": request.version,
        "options": options,
        "credentials": credentials,
        "cluster": request.namespace == CLUSTER_NAMESPACE,
    }


def user_name() -> str:
    """Who runs this process."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


class TaskMeter:
    """Shows how far a task is on a meter, from what the agent says now and then."""

    def __init__(self, meter: "Meter", verb: str) -> None:
        self._meter = meter
        self._verb = verb
        self._shown = (0, 0)
        self._totals = (0, 0)

    def show(self, task: TaskInfo) -> None:
        """Shows what is new; a task begins to be shown when something is under way."""
        under_way = [one for one in task.datasets if one.state == "running" and (one.bytes_total or one.files_total)]
        if under_way:
            self._start(task, sum(one.bytes_total for one in task.datasets), sum(o.files_total for o in task.datasets))
            self._advance(sum(one.bytes_done for one in task.datasets), sum(one.files_done for one in task.datasets))

    def end(self, task: TaskInfo) -> None:
        """Shows the end of a task that is ready, unless nothing had to be brought."""
        brought = [one for one in task.datasets if one.outcome in ("fetched", "updated")]
        if brought or self._totals != (0, 0):
            size, files = sum(one.bytes for one in brought), sum(one.files for one in brought)
            if self._totals == (0, 0):
                self._start(task, size, files)
            self._advance(*self._totals)
        self._meter.stop()

    def _start(self, task: TaskInfo, size: int, files: int) -> None:
        if self._totals == (0, 0):
            self._totals = (size, files)
            self._meter.start(self._verb, ", ".join(one.name for one in task.datasets), size, files)

    def _advance(self, size: int, files: int) -> None:
        more = max(0, size - self._shown[0]), max(0, files - self._shown[1])
        self._shown = self._shown[0] + more[0], self._shown[1] + more[1]
        self._meter.advance(*more)


class FollowedTask:
    """A task that is followed. `ask` asks for it anew, and gives it: a PUT, or a GET if it is another's."""

    def __init__(self, http: AgentHttp, task_id: str, ask: Callable[[], Any], looked_at: bool) -> None:
        self._http = http
        self._id = task_id
        self._ask = ask
        self._wait = SHOWN_SECONDS if looked_at else WAIT_SECONDS

    def states(self) -> Iterator[TaskInfo]:
        """The task now and after each change, and while it is looked at each third of a second, until it is ready or
        failed. Raises AgentUnreachable, and NotCached if there is no such task.
        """
        task = result(TaskInfo, self._ask())
        while True:
            yield task
            if task.state in ("ready", "failed"):
                return
            path = f"{path_of(self._id)}?wait={self._wait}"
            try:
                task = result(TaskInfo, self._http.once("GET", path, seconds=self._wait + GRACE_SECONDS))
            except (Away, NotCached):  # it was started anew, or killed before it had written the task down
                task = result(TaskInfo, self._ask())
                continue
            if lacks_credentials(task):
                task = result(TaskInfo, self._ask())


class Bringing:
    """A task of this process, for one dataset."""

    def __init__(self, http: AgentHttp, meter: "Meter", task_id: str, body: Mapping[str, Any], looked_at: bool) -> None:
        self._http = http
        self._meter = TaskMeter(meter, "cache")
        self._path = path_of(task_id)
        self._task = FollowedTask(http, task_id, lambda: http.ask("PUT", self._path, body), looked_at)
        self._begun = False

    def __enter__(self) -> DatasetInfo:
        """The dataset when it is ready; raises what it failed with, and InsufficientStorage if it had to wait."""
        try:
            return self._bring()
        except AgentUnreachable as error:
            hint = "it goes on when the agent is back; ask again then" if self._begun else error.hint
            raise AgentUnreachable(error.action, error.subject, error.cause, hint) from error
        except BaseException:
            self._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends the task: from here on, only the leases that were taken keep the dataset."""
        if kind is not None:
            self._leave()
            return
        with contextlib.suppress(AgentUnreachable, NotCached):  # it ends by itself
            self._http.once("DELETE", self._path, seconds=GRACE_SECONDS)

    def _bring(self) -> DatasetInfo:
        for task in self._task.states():
            self._begun = True
            (dataset,) = task.datasets
            if dataset.error is not None and (task.state == "failed" or waits_for_space(dataset)):
                raise error_of(dataset.error)
            self._meter.show(task)
        self._meter.end(task)
        return dataset

    def _leave(self) -> None:
        """Gives the task up, with what is left of the second that there is; else it ends by itself."""
        self._http.close()
        with contextlib.suppress(DsagentError):
            self._http.once("DELETE", self._path, seconds=PARTING_SECONDS)


def waits_for_space(dataset: DatasetInfo) -> bool:
    """Whether a pending dataset waits for leases to end."""
    return dataset.error is not None and dataset.error.exit_code == ExitCode.STORAGE


def lacks_credentials(task: TaskInfo) -> bool:
    """Whether an agent that was started anew waits for the credentials of a task, which it keeps in memory only."""
    return any(
        one.state == "pending" and one.error is not None and one.error.exit_code == ExitCode.PERMISSION
        for one in task.datasets
    )


def errors_of(datasets: Sequence[DatasetInfo]) -> list[DsagentError]:
    """Why datasets failed."""
    return [error_of(one.error) for one in datasets if one.state == "failed" and one.error is not None]
