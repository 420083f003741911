"""The verbs that bring data, as functions, and the object that holds a dataset."""

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType

from dsagent.core.errors import UsageError
from dsagent.core.eviction import Evicted
from dsagent.core.ports import Location
from dsagent.core.progress import Progress
from dsagent.core.quantities import parse_size
from dsagent.engine.pack import PackOptions
from dsagent.entrypoints.meters import NoMeter, TickingMeter
from dsagent.entrypoints.notebook import NotebookBar, notebook_display
from dsagent.service import pack as packing
from dsagent.service import run as running
from dsagent.service.leases import ProcessLease
from dsagent.service.node import Meter
from dsagent.service.origins import CacheRequest, Check
from dsagent.service.results import Outcome, PackResult
from dsagent.service.settings import Flags, load_settings
from dsagent.service.verbs import Verbs
from dsagent.wiring import Asking, Wiring, default_workers, open_verbs

logging.getLogger("dsagent").addHandler(logging.NullHandler())

CALLBACK_SECONDS = 0.2

PathOrUrl = str | os.PathLike[str]
Size = int | str
ProgressCallback = Callable[[Progress], None]
StorageOptions = Mapping[str, str]


@dataclass(frozen=True)
class Cached(os.PathLike[str]):
    """A dataset that is present and verified at `path`, and stays as long as this process's lease on it lives:
    until `release()`, the end of the `with`, or the interpreter's end.

    `outcome` says how it came there; `bytes` and `files` are its own, `fetched_bytes` the plain bytes that had to be
    read, `reused_files` came from an earlier version, `evicted` had to go for it; `seconds` is what it took.
    """

    dataset: str
    version: str
    path: Path
    outcome: Outcome
    files: int
    bytes: int
    fetched_bytes: int
    reused_files: int
    evicted: Sequence[Evicted]
    seconds: float
    _lease: ProcessLease | None = field(default=None, repr=False, compare=False)

    def __fspath__(self) -> str:
        return str(self.path)

    def __enter__(self) -> "Cached":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __reduce__(self) -> tuple[object, ...]:
        # A lease's descriptor means nothing in another process: a pickled copy holds none.
        return type(self), tuple(getattr(self, f.name) for f in fields(self) if f.name != "_lease")

    def release(self) -> None:
        """Gives up this process's lease; forked children keep theirs. Nothing happens the second time."""
        if self._lease is not None:
            self._lease.release()

    def lease_descriptor(self) -> int:
        """Makes the lease's descriptor inheritable and returns it, for the `pass_fds` of `subprocess`.

        Raises UsageError if there is no lease any more.
        """
        if self._lease is None:
            raise UsageError("pass on", f"the lease on {self.dataset}", "a copy from another process holds none")
        return self._lease.inheritable()


def cache(  # noqa: PLR0913 - one parameter an option of the verb
    source: PathOrUrl,
    name: str | None = None,
    *,
    version: str | None = None,
    check: Check = "fingerprint",
    replace_source: bool = False,
    pack_to: PathOrUrl | None = None,
    skip_special: bool = False,
    storage_options: StorageOptions | None = None,
    root: PathOrUrl | None = None,
    agent: str | None = None,
    capacity: Size | None = None,
    keep_free: Size | None = None,
    progress: ProgressCallback | None = None,
) -> Cached:
    """Makes a dataset present, verified and read-only on this node, and leases it for this process.

    `source` is a directory, a store or a URL; `check` compares a source by its listing ("fingerprint"), by reading
    all of it ("content") or not at all ("never"). `progress` is called a few times a second, in a thread of its own.
    `agent` is the address of the agent of this machine to ask; by default it is the one that holds the root, if there
    is one. Raises subclasses of DsagentError.
    """
    request = CacheRequest(
        location(source, storage_options),
        name,
        version,
        check=check,
        replace_source=replace_source,
        pack_to=None if pack_to is None else location(pack_to, storage_options),
        skip_special=skip_special,
    )
    with meter_for(progress) as meter:
        result, lease = verbs(root, agent, meter, capacity, keep_free).cache_and_hold(request, _owner())
    return Cached(
        result.dataset,
        result.version,
        Path(result.path),
        result.outcome,
        result.files,
        result.bytes,
        result.fetched_bytes,
        result.reused_files,
        result.evicted,
        result.seconds,
        lease,
    )


def pack(  # noqa: PLR0913 - one parameter an option of the verb
    source: PathOrUrl,
    store: PathOrUrl,
    name: str | None = None,
    *,
    files_per_bundle: int = 50_000,
    bundle_bytes: Size = 1 << 30,
    level: int = 1,
    workers: int | None = None,
    skip_special: bool = False,
    storage_options: StorageOptions | None = None,
    progress: ProgressCallback | None = None,
) -> PackResult:
    """Packs a tree into a store; a second time only what changed."""
    options = PackOptions(files_per_bundle, parse_size(str(bundle_bytes)), level)
    places = location(source, storage_options), location(store, storage_options)
    with meter_for(progress) as meter:
        request = packing.PackRequest(*places, name, options, skip_special)
        return packing.pack(Wiring(), meter, workers or default_workers(), request)


def run(
    datasets: Sequence[str],
    command: Sequence[str],
    *,
    storage_options: StorageOptions | None = None,
    root: PathOrUrl | None = None,
    agent: str | None = None,
    progress: ProgressCallback | None = None,
) -> int:
    """Runs a command with its datasets (names, or sources to cache) kept in place; returns its exit code.

    Their paths are in its environment as DSAGENT_DATASET_<NAME>.
    """
    with meter_for(progress) as meter:
        here = verbs(root, agent, meter)
        options = tuple(sorted((storage_options or {}).items()))
        held = [here.find_or_cache(wanted, options, _owner()) for wanted in datasets]
    try:
        return subprocess.run(
            command,
            check=False,
            env=os.environ | running.environment(held),
            pass_fds=[one.lease.inheritable() for one in held],
        ).returncode
    finally:
        for one in held:
            one.lease.release()


def location(place: PathOrUrl, options: StorageOptions | None) -> Location:
    """Where a source or store is."""
    return Location(os.fspath(place), tuple(sorted((options or {}).items())))


def verbs(
    root: PathOrUrl | None,
    agent: str | None,
    meter: Meter | None = None,
    capacity: Size | None = None,
    keep_free: Size | None = None,
) -> Verbs:
    """The verbs on the cache of this machine, or on an agent's; raises UsageError and UnfitRoot."""
    settings = load_settings(Flags(root, capacity, keep_free), os.environ)
    return open_verbs(settings, meter or NoMeter(), Asking(agent, looked_at=isinstance(meter, TickingMeter)))


def _owner() -> str:
    return f"{os.path.basename(sys.argv[0]) or 'python'} ({os.getpid()})"


@contextlib.contextmanager
def meter_for(progress: ProgressCallback | None) -> Iterator[Meter]:
    """Calls back, draws a bar in a notebook, or stays silent."""
    if progress is not None:
        meter = TickingMeter(lambda done, _final: progress(done), CALLBACK_SECONDS)
    elif (display := notebook_display()) is not None:
        meter = TickingMeter(NotebookBar(display).draw, CALLBACK_SECONDS)
    else:
        yield NoMeter()
        return
    try:
        yield meter
    finally:
        meter.stop()
