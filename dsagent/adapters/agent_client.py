"""The verbs as an agent does them: the same results and the same errors, over HTTP."""

import fcntl
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from dsagent.adapters.agent_answers import result, results
from dsagent.adapters.agent_http import AgentHttp
from dsagent.adapters.agent_places import place
from dsagent.adapters.agent_tasks import Bringing, FollowedTask, dataset_request, path_of, task_request
from dsagent.core.errors import (
    AgentUnreachable,
    NotCached,
    UnfitRoot,
    UsageError,
    error_of,
    local_error,
)
from dsagent.core.ports import Location
from dsagent.core.problem import Problem
from dsagent.core.tasks import TaskInfo
from dsagent.service.results import (
    CachedInfo,
    CachePlan,
    CacheResult,
    DiffResult,
    DiskInfo,
    EvictResult,
    Finding,
    GrantedLease,
    LeaseInfo,
    LimitsInfo,
    VerifyResult,
)

if TYPE_CHECKING:
    from dsagent.service.diff import Side
    from dsagent.service.leases import ProcessLease
    from dsagent.service.node import Meter
    from dsagent.service.origins import CacheRequest
    from dsagent.service.run import Held

Options = tuple[tuple[str, str], ...]
T = TypeVar("T")

HANDOVERS = 3  # an agent that is started anew in the middle has let the lease go


class AgentVerbs:
    """The verbs on the cache that an agent has; see dsagent.service.verbs.Verbs. Used by one thread.

    `looked_at` says whether somebody sees the meter; `environ` is where the user's credentials are.
    """

    def __init__(self, http: AgentHttp, meter: "Meter", looked_at: bool, environ: Mapping[str, str]) -> None:
        self._http = http
        self._meter = meter
        self._looked_at = looked_at
        self._environ = environ

    @property
    def root(self) -> str:
        """See Verbs.root."""
        return self.df().root

    def cache(self, request: "CacheRequest") -> CacheResult:
        """See Verbs.cache."""
        started = time.perf_counter()
        with self._bringing(request) as dataset:
            info = _cached(dataset)
            lease = ""
            if request.lease_owner is not None:
                reference = f"{info.dataset}@{info.version}"
                lease = self.add_lease(reference, request.lease_owner, request.lease_seconds).id
        return replace(info, lease=lease, seconds=time.perf_counter() - started)

    def cache_and_hold(self, request: "CacheRequest", owner: str) -> "tuple[CacheResult, ProcessLease]":
        """See Verbs.cache_and_hold."""
        started = time.perf_counter()
        self._require_local("hold", request.name or request.source.url)
        with self._bringing(request) as dataset:
            info = _cached(dataset)
            lease = self._hold(f"{info.dataset}@{info.version}", info.path, owner)
        return replace(info, seconds=time.perf_counter() - started), lease

    def find_or_cache(self, wanted: str, options: Options, owner: str) -> "Held":
        """See Verbs.find_or_cache."""
        from dsagent.service.origins import CacheRequest  # noqa: PLC0415 - slow to import
        from dsagent.service.run import Held, means_cached  # noqa: PLC0415 - likewise

        self._require_local("hold", wanted)
        if means_cached(wanted, self._is_here):
            info = self._found(wanted)
            return Held(info.dataset, info.path, self._hold(f"{info.dataset}@{info.version}", info.path, owner))
        brought, lease = self.cache_and_hold(CacheRequest(Location(wanted, options)), owner)
        return Held(brought.dataset, brought.path, lease)

    def plan_cache(self, request: "CacheRequest") -> CachePlan:
        """See Verbs.plan_cache."""
        body = {"dataset": dataset_request(request, self._environ)}
        return result(CachePlan, self._http.ask("POST", "/v1/plan", body))

    def ls(self) -> list[CachedInfo]:
        """See Verbs.ls."""
        return results(CachedInfo, self._http.ask("GET", "/v1/datasets"))

    def path(self, reference: str) -> str:
        """See Verbs.path."""
        return self._found(reference).path

    def df(self) -> DiskInfo:
        """See Verbs.df."""
        return result(DiskInfo, self._http.ask("GET", "/v1/disk"))

    def verify(self, reference: str, repair: bool, options: Options) -> VerifyResult:
        """See Verbs.verify."""
        source = self._found(reference).source if repair else ""
        opened = place(Location(source, options), self._environ)
        body = {"storage": opened.storage, "credentials": opened.credentials}
        return self._stream("/v1/verify", {"reference": reference, "repair": repair, **body}, VerifyResult)

    def evict(self, reference: str, force: bool, dry_run: bool) -> EvictResult:
        """See Verbs.evict."""
        body = {"reference": reference, "force": force, "dry_run": dry_run}
        return result(EvictResult, self._http.ask("POST", "/v1/evict", body))

    def evict_need(self, size: int, dry_run: bool) -> EvictResult:
        """See Verbs.evict_need."""
        return result(EvictResult, self._http.ask("POST", "/v1/evict", {"need": size, "dry_run": dry_run}))

    def diff(self, a: "Side", b: "Side") -> DiffResult:
        """See Verbs.diff."""
        found = self._stream("/v1/diff", {"a": self._side(a), "b": self._side(b)}, DiffResult)
        return replace(found, a=a.text, b=b.text)

    def doctor(self, rebuild: bool) -> list[Finding]:
        """See Verbs.doctor."""
        asked = ("POST", "/v1/doctor/rebuild") if rebuild else ("GET", "/v1/doctor")
        return results(Finding, self._http.ask(*asked))

    def add_lease(self, reference: str, owner: str, seconds: float) -> LeaseInfo:
        """See Verbs.add_lease."""
        body = {"reference": reference, "owner": owner, "seconds": _checked(seconds, reference)}
        return result(LeaseInfo, self._http.ask("POST", "/v1/leases", body))

    def renew_lease(self, wanted: str, owner: str | None, seconds: float) -> LeaseInfo:
        """See Verbs.renew_lease."""
        body = {"owner": owner, "seconds": _checked(seconds, wanted)}
        return result(LeaseInfo, self._http.ask("PUT", _lease(wanted), body))

    def release_lease(self, wanted: str, owner: str | None) -> LeaseInfo:
        """See Verbs.release_lease."""
        query = f"?{urlencode({'owner': owner})}" if owner is not None else ""
        return result(LeaseInfo, self._http.ask("DELETE", _lease(wanted) + query))

    def leases(self) -> Sequence[LeaseInfo]:
        """See Verbs.leases."""
        return results(LeaseInfo, self._http.ask("GET", "/v1/leases"))

    def hold(self, reference: str, owner: str) -> "ProcessLease":
        """See Verbs.hold."""
        self._require_local("hold", reference)
        info = self._found(reference)
        return self._hold(f"{info.dataset}@{info.version}", info.path, owner)

    # What only an agent has.

    def tasks(self) -> list[TaskInfo]:
        """The tasks that are this user's to see."""
        return results(TaskInfo, self._http.ask("GET", "/v1/tasks"))

    def follow(self, task_id: str) -> Iterator[TaskInfo]:
        """A task's states until it is ready or failed; raises NotCached if there is none."""
        path = path_of(task_id)
        return FollowedTask(self._http, task_id, lambda: self._http.ask("GET", path), self._looked_at).states()

    def limits(self) -> LimitsInfo:
        """What all its work shares."""
        return result(LimitsInfo, self._http.ask("GET", "/v1/limits"))

    def close(self) -> None:
        """Ends the connection."""
        self._http.close()

    def _bringing(self, request: "CacheRequest") -> Bringing:
        body = task_request(request, self._environ)
        return Bringing(self._http, self._meter, f"dsctl-{uuid.uuid4()}", body, self._looked_at)

    def _found(self, reference: str) -> CachedInfo:
        """The version that a reference means; counts as a use. Raises NotCached."""
        query = urlencode({"reference": reference})
        found = results(CachedInfo, self._http.ask("GET", f"/v1/datasets?{query}"))
        if not found:
            raise NotCached("find", reference, "it is not there", "dsctl ls shows what is")
        return found[0]

    def _is_here(self, reference: str) -> bool:
        try:
            self._found(reference)
        except (NotCached, UsageError):
            return False
        return True

    def _side(self, side: "Side") -> dict[str, Any]:
        """A side as the agent is told of it: a reference, or a place of this user's."""
        from dsagent.service.diff import means_cached  # noqa: PLC0415 - slow to import

        if means_cached(side.text, self._is_here):
            return {"source": side.text}
        text, at, version = side.text.rpartition("@xxh3:")
        opened = place(Location(text if at else side.text, side.options), self._environ)
        return opened._replace(source=opened.source + at + version if at else opened.source).document()

    def _stream(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        """What a long verb ends with, its progress on the meter."""
        shown: tuple[int, int] | None = None
        for event, document in self._http.stream("POST", path, body):
            if event == "result":
                self._meter.stop()
                return result(kind, document)
            if event == "problem":
                raise error_of(result(Problem, document))
            if event == "progress":
                if shown is None:
                    totals = document["bytes_total"], document["files_total"]
                    self._meter.start(document["verb"], document["subject"], *totals)
                before, shown = shown or (0, 0), (document["bytes_done"], document["files_done"])
                self._meter.advance(shown[0] - before[0], shown[1] - before[1])
        raise AgentUnreachable("hear from", self._http.subject, "it ended in the middle", "ask again")

    def _require_local(self, action: str, subject: str) -> None:
        if not self._http.is_local:
            raise UsageError(
                action,
                subject,
                f"{self._http.subject} is on another machine, and a lease of a process is a lock on a file of its root",
                "run it there, or keep the dataset by time: dsctl cache --lease OWNER --lease-for 8h",
            )

    def _hold(self, reference: str, path: str, owner: str) -> "ProcessLease":
        """Takes a lease over from the agent: from the moment that this process has the lock, no agent is needed."""
        from dsagent.service.leases import ProcessLease  # noqa: PLC0415 - slow to import

        body = {"reference": reference, "owner": owner, "seconds": None}
        root = Path(self.root)
        for attempt in range(HANDOVERS):
            granted = result(GrantedLease, self._http.ask("POST", "/v1/leases", body))
            file = root / (granted.file or "")
            try:
                fd = _locked(file)
                try:
                    self._http.ask("PUT", f"/v1/leases/{granted.id}/held")
                except BaseException:
                    os.close(fd)
                    raise
            except (NotCached, FileNotFoundError) as error:
                if attempt < HANDOVERS - 1:
                    continue
                cause = f"its file {file} is not to be seen by this process"
                hint = "run it where the agent's root is, at the same path"
                raise UnfitRoot("hold", reference, cause, hint) from error
            info = LeaseInfo(granted.id, granted.owner, granted.dataset, granted.version, None)
            return ProcessLease(fd, info, file, Path(path).parent)
        raise AssertionError  # the last attempt returns or raises


def _locked(file: Path) -> int:
    """A descriptor with a shared lock on a lease's file; raises FileNotFoundError, NotPermitted."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise local_error("hold", str(file), error) from error
    return fd


def _cached(dataset: Any) -> CacheResult:
    """The result of a caching from what the agent says of its task's dataset."""
    return CacheResult(
        dataset=dataset.name,
        version=dataset.version or "",
        path=dataset.path or "",
        outcome=dataset.outcome or "hit",
        files=dataset.files,
        bytes=dataset.bytes,
        fetched_bytes=dataset.fetched_bytes,
        reused_files=dataset.reused_files,
        evicted=dataset.evicted,
        skipped_special=dataset.skipped_special,
        lease="",
        seconds=dataset.seconds,
    )


def _checked(seconds: float, subject: str) -> float:
    """JSON has no word for what is no number, and none means something else there."""
    if not 0 < seconds < float("inf"):
        cause = f"{seconds} seconds is no time to hold it"
        raise UsageError("lease", subject, cause, "give a duration such as 90s, 2h or 7d")
    return seconds


def _lease(wanted: str) -> str:
    return f"/v1/leases/{quote(wanted, safe='')}"
