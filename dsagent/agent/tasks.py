"""Tasks, and the files that let them outlive the agent: `tasks/<id>.json`, without credentials."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from dsagent.agent.errand import Errand
from dsagent.core.errors import BadStore, DsagentError, local_error
from dsagent.core.eviction import Evicted
from dsagent.core.ports import Location
from dsagent.core.sealed import seal, unseal
from dsagent.core.tasks import DatasetInfo, Owner, State, TaskInfo, task_state
from dsagent.engine.tree import write_all
from dsagent.service.node import log
from dsagent.service.origins import CacheRequest, Check
from dsagent.service.results import CacheResult

_MAGIC = "dsagent-task"
_PAGE = 4096
_SCRATCH = ".new"
_FIELDS = frozenset({"id", "owner", "keep_seconds", "prefetch", "expires", "datasets"})

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Wanted:
    """One dataset of a task. `request` is free of secrets; `secret` says that `credentials` belong to it, which are
    held in memory only.
    """

    request: CacheRequest
    secret: bool = field(default=False, compare=False)
    credentials: Pairs = field(default=(), repr=False, compare=False)

    def complete(self) -> CacheRequest:
        """The request with the credentials."""
        source = self.request.source
        pack_to = self.request.pack_to
        return replace(
            self.request,
            source=Location(source.url, tuple(sorted((*source.options, *self.credentials)))),
            pack_to=pack_to and Location(pack_to.url, tuple(sorted((*pack_to.options, *self.credentials)))),
        )


@dataclass(frozen=True)
class TaskSpec:
    """What was asked for: equal to another that differs in credentials only. `waits`: the pod does not start without
    its data; it matters until its links are made, and is not written down.
    """

    id: str
    owner: Owner
    wanted: tuple[Wanted, ...]
    keep_seconds: float | None = None
    prefetch: bool = False
    waits: bool = field(default=True, compare=False)


@dataclass
class Part:
    """One dataset of a task: on its way as an errand, or at its end with a result or an error. `claimed` is the name
    of its link once it has one.
    """

    wanted: Wanted
    errand: Errand | None = None
    result: CacheResult | None = None
    error: DsagentError | None = None
    failed: bool = False
    claimed: str = ""

    @property
    def state(self) -> State:
        """See task_state."""
        if self.result is not None:
            return "ready"
        if self.failed:
            return "failed"
        return "running" if self.errand is not None and self.errand.phase == "running" else "pending"

    @property
    def name(self) -> str:
        """The dataset's name, as far as it is known; its link has this name."""
        if self.result is not None:
            return self.result.dataset.rpartition("/")[2]
        if self.errand is not None and self.errand.origin is not None:
            return self.errand.origin.key.name
        return self.wanted.request.name or ""

    def info(self) -> DatasetInfo:
        """How it is shown."""
        progress = self.errand.meter.now() if self.errand is not None else None
        result = self.result
        return DatasetInfo(
            name=self.name,
            version=result.version if result else self.wanted.request.version,
            state=self.state,
            path=result.path if result else None,
            bytes_total=progress.total_bytes if progress else 0,
            bytes_done=progress.bytes if progress else 0,
            files_total=progress.total_files if progress else 0,
            files_done=progress.files if progress else 0,
            rate=progress.byte_rate if progress and not result else 0.0,
            eta_seconds=progress.remaining if progress and not result else None,
            error=self.error.problem() if self.error else None,
            outcome=result.outcome if result else None,
            files=result.files if result else 0,
            bytes=result.bytes if result else 0,
            fetched_bytes=result.fetched_bytes if result else 0,
            reused_files=result.reused_files if result else 0,
            skipped_special=result.skipped_special if result else 0,
            evicted=result.evicted if result else (),
            seconds=result.seconds if result else 0.0,
        )


@dataclass
class Task:
    """A task and its parts. `expires`: when it is ready and `keep_seconds` have passed since. `linking`: in how many
    threads its links are being made.
    """

    spec: TaskSpec
    parts: list[Part]
    expires: datetime | None = None
    linking: int = 0

    @property
    def state(self) -> State:
        """See task_state."""
        return task_state(part.state for part in self.parts)

    def info(self) -> TaskInfo:
        """How it is shown."""
        spec = self.spec
        return TaskInfo(spec.id, spec.owner, self.state, spec.prefetch, [part.info() for part in self.parts])


def new_task(spec: TaskSpec) -> Task:
    """A task that has not begun."""
    return Task(spec, [Part(wanted) for wanted in spec.wanted])


class TaskFiles:
    """The files of tasks below a folder. All methods raise DsagentError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, task: Task) -> None:
        """Writes or replaces a task's file."""
        spec = task.spec
        document = {
            _MAGIC: 1,
            "id": spec.id,
            "owner": spec.owner,
            "keep_seconds": spec.keep_seconds,
            "prefetch": spec.prefetch,
            "expires": task.expires and task.expires.isoformat(),
            "datasets": [_part_document(part) for part in task.parts],
        }
        path, data = f"{self._folder}/{spec.id}.json", seal(document)
        try:
            try:
                self._write(path, data)
            except FileNotFoundError:
                os.makedirs(self._folder, mode=0o755, exist_ok=True)
                self._write(path, data)
        except OSError as error:
            raise local_error("write", path, error) from error

    def _write(self, path: str, data: bytes) -> None:
        # A first file takes its place at once, which changes the folder once instead of twice: nobody has heard of the
        # task before it is there, and a page is written whole or not at all.
        if len(data) <= _PAGE and self._is_first(path, data):
            return
        scratch = path.removesuffix(".json") + _SCRATCH
        with open(scratch, "wb") as file:
            file.write(data)
        os.replace(scratch, path)

    def _is_first(self, path: str, data: bytes) -> bool:
        """Writes a task's first file. Not synced: after a loss of power the pods that asked are gone, too."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        try:
            write_all(fd, data)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        return True

    def remove(self, task_id: str) -> None:
        """Removes a task's file; nothing happens if there is none."""
        try:
            self._path(task_id).unlink(missing_ok=True)
        except OSError as error:
            raise local_error("remove", str(self._path(task_id)), error) from error

    def read(self) -> Iterator[Task]:
        """All tasks that can be read; others are said and left out: who waits for them asks again."""
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return
        for name in names:
            path = self._folder / name
            try:
                if name.endswith(_SCRATCH) or not path.stat().st_size:  # its writer was killed before it answered
                    path.unlink()
                elif name.endswith(".json"):
                    yield _read(path)
            except (BadStore, OSError, KeyError, TypeError, ValueError) as error:
                log.warning("a task is forgotten: %s: %s", path, error)

    def _path(self, task_id: str) -> Path:
        return self._folder / f"{task_id}.json"


def _part_document(part: Part) -> dict[str, Any]:
    request = part.wanted.request
    return {
        "namespace": request.namespace,
        "name": request.name,
        "source": _location_document(request.source),
        "version": request.version,
        "check": request.check,
        "replace_source": request.replace_source,
        "skip_special": request.skip_special,
        "pack_to": request.pack_to and _location_document(request.pack_to),
        "secret": part.wanted.secret,
        "result": part.result,
    }


def _location_document(location: Location) -> dict[str, Any]:
    return {"url": location.url, "storage": [list(pair) for pair in location.options]}


def _read_location(document: dict[str, Any]) -> Location:
    return Location(document["url"], tuple((str(name), str(value)) for name, value in document["storage"]))


def _read(path: Path) -> Task:
    document = unseal(path.read_bytes(), str(path), _MAGIC, _FIELDS)
    parts = [_read_part(one) for one in document["datasets"]]
    spec = TaskSpec(
        document["id"],
        Owner(**document["owner"]),
        tuple(part.wanted for part in parts),
        document["keep_seconds"],
        document["prefetch"],
    )
    return Task(spec, parts, datetime.fromisoformat(document["expires"]) if document["expires"] else None)


def _read_part(document: dict[str, Any]) -> Part:
    request = CacheRequest(
        _read_location(document["source"]),
        document["name"],
        document["version"],
        check=cast("Check", document["check"]),
        replace_source=document["replace_source"],
        pack_to=_read_location(document["pack_to"]) if document["pack_to"] else None,
        skip_special=document["skip_special"],
        namespace=document["namespace"],
    )
    result = document["result"]
    if result is not None:
        result = CacheResult(**{**result, "evicted": [Evicted(**one) for one in result["evicted"]]})
    part = Part(Wanted(request, document["secret"]), result=result)
    part.claimed = part.name if result is not None else ""
    return part
