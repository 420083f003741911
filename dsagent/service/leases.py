"""Who uses which version. A lease is a file `locks/lease-<version id>.<lease id>`, a task's link (pods.py), or a mount
in a pod.

A lease of a process is alive as long as any process holds a shared flock on its file; the kernel ends that
when the last of them ends. Any other lease is alive until the time written in it. The file of a dead lease is
removed when the next one is made or changed.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dsagent.core.datasets import LOCAL_NAMESPACE, DatasetKey, split_reference
from dsagent.core.errors import NotCached, UsageError
from dsagent.core.ports import CachedVersion
from dsagent.service import pods
from dsagent.service.lease_files import LeaseFile, lease_path, probing, write, written
from dsagent.service.node import Node, is_free, new_id
from dsagent.service.results import LeaseInfo


class ProcessLease:
    """A lease that lives until the last process that holds its descriptor ends.

    Forked children hold it too; a program that they start only if it is given the descriptor.
    """

    def __init__(self, fd: int, info: LeaseInfo, file: Path, folder: Path) -> None:
        self._fd = fd
        self.file = file
        self._folder = folder
        self.info = info

    def inheritable(self) -> int:
        """The descriptor, for `pass_fds`; programs started without `close_fds` get it from now on."""
        if self._fd < 0:
            raise UsageError("pass on", f"the lease on {self.info.dataset}", "it was released")
        os.set_inheritable(self._fd, True)
        return self._fd

    def release(self) -> None:
        """Closes this process's descriptor; nothing happens the second time.

        The lock itself is never taken off: children that hold the descriptor go on holding the lease.
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # only the order of eviction depends on it
                os.utime(self._folder)
            os.close(fd)


def hold(node: Node, version: CachedVersion, owner: str) -> ProcessLease:
    """A lease of this process; raises NotCached if the version is not there any more."""
    info = LeaseInfo(new_id(), owner, str(version.dataset), version.version, None)
    with node.catalog.lock():
        _sweep(node)
        _require_present(node, version)
        fd = write(node, version.id, info)
    return ProcessLease(fd, info, lease_path(node, version.id, info.id), node.folder(version))


def add(node: Node, reference: str, owner: str, seconds: float) -> LeaseInfo:
    """A lease on `name` or `name@version` for `seconds` from now; raises NotCached, UsageError."""
    return add_lease(node, node.find(reference), owner, seconds)


def add_lease(node: Node, version: CachedVersion, owner: str, seconds: float) -> LeaseInfo:
    """A lease for `seconds` from now; raises NotCached if the version is not there any more.

    One owner has one lease on a version: asked again, it ends at the later time.
    """
    if not owner or not owner.isprintable():
        raise UsageError("lease", str(version.dataset), "the owner must be printable text")
    expires = _until(node, str(version.dataset), seconds)
    with node.catalog.lock():
        _sweep(node)
        _require_present(node, version)
        for lease in written(node):
            info = lease.info
            if lease.version_id == version.id and info.owner == owner and info.expires is not None:
                expires = max(expires, info.expires)
                break
        else:
            info = LeaseInfo(new_id(), owner, str(version.dataset), version.version, None)
        info = replace(info, expires=expires)
        os.close(write(node, version.id, info))
    return info


def renew(node: Node, wanted: str, owner: str | None, seconds: float) -> LeaseInfo:
    """Lets a lease end `seconds` from now. `wanted` is its id, or a dataset on which `owner` has one.

    Raises NotCached if there is no such lease, UsageError if that means several or one that a process holds.
    """
    expires = _until(node, wanted, seconds)
    with node.catalog.lock():
        _sweep(node)
        lease = _the_one(node, wanted, owner)
        info = replace(lease.info, expires=expires)
        os.close(write(node, lease.version_id, info))
    return info


def release(node: Node, wanted: str, owner: str | None) -> LeaseInfo:
    """Ends a lease; `wanted` and errors as for `renew`."""
    with node.catalog.lock():
        _sweep(node)
        lease = _the_one(node, wanted, owner)
        _end(node, lease, node.clock.now())
    return lease.info


def list_leases(node: Node) -> list[LeaseInfo]:
    """All living leases."""
    return [info for infos in leases_by_version(node).values() for info in infos]


def leases_by_version(node: Node) -> dict[str, list[LeaseInfo]]:
    """The living leases on each version, by the version's id; versions without one are left out."""
    found: dict[str, list[LeaseInfo]] = {}
    with probing(node):
        for lease in _living(node):
            found.setdefault(lease.version_id, []).append(lease.info)
    for path, dataset, version_id in pods.links(node):
        task = path.parent.name
        found.setdefault(version_id, []).append(LeaseInfo(f"pods/{task}", f"task {task}", str(dataset), "", None))
    for pod, dataset, version_id in node.mounted():
        infos = found.setdefault(version_id, [])
        if not {f"pods/{pod}", f"mounts/{pod}"} & {info.id for info in infos}:
            infos.append(LeaseInfo(f"mounts/{pod}", f"pod {pod}, where it is mounted", str(dataset), "", None))
    return found


def leased_versions(node: Node) -> set[str]:
    """The ids of versions with a living lease."""
    return set(leases_by_version(node))


def end_named(node: Node, versions: Sequence[CachedVersion]) -> None:
    """Inside a decision: ends all leases by time on `versions`."""
    ids = {version.id for version in versions}
    for lease in written(node):
        if lease.version_id in ids and lease.info.expires is not None:
            _unlink(lease)


def _sweep(node: Node) -> None:
    """Inside a decision: removes the files of dead leases, and what killed writers of leases left."""
    now = node.clock.now()
    with probing(node):
        living = {lease.path for lease in _living(node)}
        for lease in written(node):
            if lease.path not in living:
                _end(node, lease, lease.info.expires or now)
    for scratch in node.locks.glob(".*"):
        scratch.unlink(missing_ok=True)


def _end(node: Node, lease: LeaseFile, used: datetime) -> None:
    """Removes a lease's file; its version was in use until `used`."""
    namespace, _, name = lease.info.dataset.rpartition("/")
    key = DatasetKey(namespace, name) if namespace else DatasetKey(LOCAL_NAMESPACE, name)
    folder = node.versions / key.namespace / key.name / lease.version_id
    with contextlib.suppress(OSError):  # only the order of eviction depends on it
        if folder.stat().st_mtime < used.timestamp():
            os.utime(folder, (used.timestamp(), used.timestamp()))
    _unlink(lease)


def _unlink(lease: LeaseFile) -> None:
    lease.path.unlink(missing_ok=True)


def _the_one(node: Node, wanted: str, owner: str | None) -> LeaseFile:
    leases = [lease for lease in _living(node) if lease.info.id == wanted]
    if not leases:
        dataset, version = split_reference(wanted)
        leases = [
            lease
            for lease in _living(node)
            if lease.info.dataset == str(dataset)
            and version in (None, lease.info.version)
            and (lease.info.owner == owner if owner else lease.info.expires is not None)
        ]
        # An owner may have one of a process beside one by time; only that can be meant.
        leases = [lease for lease in leases if lease.info.expires is not None] or leases
    if not leases:
        raise NotCached(
            "find",
            f"a lease on {wanted}",
            f"{owner} has none" if owner else "nobody has one",
            "see them all with: dsctl lease ls",
        )
    if len(leases) > 1:
        owners = ", ".join(f"{lease.info.id} of {lease.info.owner}" for lease in leases)
        raise UsageError("choose", f"a lease on {wanted}", f"there are several: {owners}", "give the id or the owner")
    if leases[0].info.expires is None:
        raise UsageError("change", f"the lease {leases[0].info.id}", "a process holds it, and it ends with the process")
    return leases[0]


def _living(node: Node) -> Iterator[LeaseFile]:
    now = node.clock.now()
    for lease in written(node):
        if lease.info.expires > now if lease.info.expires is not None else not is_free(lease.path):
            yield lease


def _require_present(node: Node, version: CachedVersion) -> None:
    if not node.data(version).is_dir():
        hint = "cache it again: dsctl cache"
        raise NotCached("lease", f"{version.dataset}@{version.version}", "it was evicted meanwhile", hint)


def _until(node: Node, subject: str, seconds: float) -> datetime:
    try:
        if seconds > 0:
            return (node.clock.now() + timedelta(seconds=seconds)).astimezone(UTC)
    except (OverflowError, ValueError):
        pass
    raise UsageError(
        "lease", subject, f"{seconds} seconds is no time to hold it", "give a duration such as 90s, 2h or 7d"
    )
