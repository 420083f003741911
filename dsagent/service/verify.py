"""`verify`: re-reads a version against its manifest, and fetches what is bad anew."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from dsagent.core.entries import FILE, Entry, rounded
from dsagent.core.errors import BadStore, DigestMismatch, NotPermitted, local_error
from dsagent.core.eviction import Evicted
from dsagent.core.ports import CachedVersion, Location
from dsagent.core.space import Space
from dsagent.engine.check import BadEntry, check_tree
from dsagent.engine.copy import copy_jobs
from dsagent.engine.crew import Crew
from dsagent.engine.manifests import read_entries, read_manifest
from dsagent.engine.repair import make_parents, put_in_place
from dsagent.engine.scan import Listing
from dsagent.engine.staging import Staging
from dsagent.engine.unpack import UnpackPlan
from dsagent.service.flight import SMALL_BYTES, SMALL_FILES
from dsagent.service.leases import hold
from dsagent.service.node import Node, held, step
from dsagent.service.origins import store_dataset
from dsagent.service.recovery import recover
from dsagent.service.results import BadFile, VerifyResult
from dsagent.service.space import reserve

JOBS_AHEAD = 64


def verify(node: Node, reference: str, repair: bool, options: tuple[tuple[str, str], ...] = ()) -> VerifyResult:
    """Re-reads every file of a version. With `repair`, what is bad is fetched anew from where the version came from,
    if its content still is the recorded one there; `options` open that source.

    Raises NotCached; DigestMismatch if the manifest itself is damaged; what opening and reading the source raises.
    """
    started = time.perf_counter()
    recover(node)
    version = node.find(reference)
    repaired, evicted = 0, list[Evicted]()
    with _in_use(node, version):
        small = version.files <= SMALL_FILES and version.bytes <= SMALL_BYTES
        with Crew(0 if small else node.workers, node.open, node.meter.advance, gate=node.gate) as crew:
            step("check")
            node.meter.start("verify", str(version.dataset), version.bytes, version.files)
            bad = _check(node, version, crew)
            node.meter.stop()
        if bad and repair:
            step("repair")
            repaired, evicted = _Repair(node, version, Location(version.source, options)).run(bad)
    return VerifyResult(
        dataset=str(version.dataset),
        version=version.version,
        files=version.files,
        bad=[BadFile(one.path, one.problem) for one in bad],
        repaired=repaired,
        evicted=evicted,
        seconds=time.perf_counter() - started,
    )


@contextlib.contextmanager
def _in_use(node: Node, version: CachedVersion) -> Iterator[None]:
    """Holds a lease meanwhile, where one can be written."""
    try:
        lease = hold(node, version, "dsctl verify")
    except NotPermitted:  # nor can anyone evict from here
        yield
        return
    try:
        yield
    finally:
        lease.release()


def _check(node: Node, version: CachedVersion, crew: Crew) -> list[BadEntry]:
    store = node.manifest_store(version)
    try:
        manifest = read_manifest(store, version.version)
        return list(check_tree(str(node.data(version)), store, manifest, crew))
    except BadStore as error:
        hint = f"remove it and cache it again: dsctl evict {version.dataset}@{version.version}"
        raise DigestMismatch("verify", str(version.dataset), f"its manifest is damaged: {error.cause}", hint) from error


class _Repair:
    """The repair of one version, as a flight of its own."""

    def __init__(self, node: Node, version: CachedVersion, source: Location) -> None:
        self._node = node
        self._version = version
        self._source = source
        self._flight = f"repair-{version.id}"

    def run(self, bad: Sequence[BadEntry]) -> tuple[int, list[Evicted]]:
        """Puts right what can be; returns how many entries that were, and what was evicted to make room."""
        node, data = self._node, str(self._node.data(self._version))
        with held(node.lock(self._flight), waiting=lambda: time.sleep(0.1)) as fd:
            wanted = self._recorded({one.path for one in bad})
            need = Space(sum(rounded(entry.size) for entry in wanted), len(wanted))
            evicted = reserve(node, {self._flight: need}, str(self._version.dataset), [self._version.id])
            staging = Staging(node.staging / self._flight, node.mount_token(str(node.root)))
            try:
                make_parents(str(staging.data), wanted)
                workers = 0 if len(wanted) <= SMALL_FILES and need.bytes <= SMALL_BYTES else node.workers
                with Crew(workers, node.open, node.meter.advance, inherit=(fd,), gate=node.gate) as crew:
                    fetched = self._fetch(wanted, staging, crew)
                # On the device before they take their place: this version is known to be there whole.
                node.sync(str(node.root))
                put_in_place(data, str(staging.data), fetched)
                staging.remove()
            except OSError as error:
                raise local_error("repair", data, error) from error
            finally:
                with node.catalog.decide() as decision:
                    decision.release(self._flight)
        return len(fetched), evicted

    def _recorded(self, paths: set[bytes]) -> list[Entry]:
        store = self._node.manifest_store(self._version)
        manifest = read_manifest(store, self._version.version)
        return [entry for entry in read_entries(store, manifest) if entry.path in paths]

    def _fetch(self, wanted: Sequence[Entry], staging: Staging, crew: Crew) -> list[Entry]:
        """Brings files into the staging folder; the entries that can take their place now, in path order."""
        files = {entry.path for entry in wanted if entry.kind == FILE}
        others = {entry.path for entry in wanted if entry.kind != FILE}
        if files and store_dataset(self._node.open, self._source) is not None:
            files = self._unpack(files, staging, crew)
        elif files:
            files = self._copy({entry.path: entry for entry in wanted if entry.kind == FILE}, staging, crew)
        return [entry for entry in wanted if entry.path in files or entry.path in others]

    def _unpack(self, paths: set[bytes], staging: Staging, crew: Crew) -> set[bytes]:
        store = self._node.open.store(self._source)
        manifest = read_manifest(store, self._version.version)
        plan = UnpackPlan(self._source, manifest.bundles, str(staging.data), str(staging.journal))
        entries = [entry for entry in read_entries(store, manifest) if entry.path in paths]
        jobs = [job for entry in entries for job in plan.add(entry)] + list(plan.rest())
        for _ in crew.in_order(((None, job) for job in jobs), JOBS_AHEAD):
            pass
        return {entry.path for entry in entries}

    def _copy(self, wanted: dict[bytes, Entry], staging: Staging, crew: Crew) -> set[bytes]:
        """Files whose content is not the recorded one any more are left as they are."""
        listing = Listing(self._node.open.source(self._source), skip_special=True)
        stamps = [
            stamp
            for stamp in listing
            if (entry := wanted.get(stamp.path))
            and (stamp.kind, stamp.size, stamp.executable) == (FILE, entry.size, entry.executable)
        ]
        jobs = ((job, job) for job in copy_jobs(self._source, stamps, [b""] * len(stamps), str(staging.data)))
        return {
            stamp.path
            for job, result in crew.in_order(jobs, JOBS_AHEAD)
            for stamp, content in zip(job.files, result.value, strict=True)
            if content == wanted[stamp.path].content
        }
