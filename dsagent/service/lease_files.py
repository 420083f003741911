"""The files of leases, `locks/lease-<version id>.<lease id>`."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from dsagent.core.errors import BadStore, local_error
from dsagent.core.sealed import seal, unseal
from dsagent.engine.tree import write_all
from dsagent.service.node import Node
from dsagent.service.results import LeaseInfo

_PREFIX = "lease-"
_MAGIC = "dsagent-lease"
_FIELDS = frozenset({"dataset", "version", "owner", "expires"})


class LeaseFile(NamedTuple):
    """A lease's file and what it says."""

    version_id: str
    info: LeaseInfo
    path: Path


def lease_path(node: Node, version_id: str, lease_id: str) -> Path:
    """The file of a lease."""
    return node.locks / f"{_PREFIX}{version_id}.{lease_id}"


def written(node: Node) -> Iterator[LeaseFile]:
    """All leases that have a file, dead or alive."""
    try:
        names = sorted(os.listdir(node.locks))
    except FileNotFoundError:
        return
    except OSError as error:
        raise local_error("list", str(node.locks), error) from error
    for name in names:
        if name.startswith(_PREFIX):
            version_id, _, lease_id = name.removeprefix(_PREFIX).partition(".")
            path = node.locks / name
            with contextlib.suppress(FileNotFoundError):
                yield LeaseFile(version_id, _read(path, lease_id), path)


def _read(path: Path, lease_id: str) -> LeaseInfo:
    try:
        document = unseal(path.read_bytes(), str(path), _MAGIC, _FIELDS)
    except (BadStore, PermissionError):  # a loss of power cut it short: its flock says whether it is alive
        return LeaseInfo(lease_id, "unknown", "unknown", "", None)
    expires = datetime.fromisoformat(document["expires"]) if document["expires"] else None
    return LeaseInfo(lease_id, document["owner"], document["dataset"], document["version"], expires)


@contextlib.contextmanager
def probing(node: Node) -> Iterator[None]:
    """One process at a time: a probe takes the lock for a moment, and to another that looks like a lease."""
    try:
        fd = os.open(node.locks / "probe", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:  # a root that is not there yet, or that can only be read
        yield
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write(node: Node, version_id: str, info: LeaseInfo) -> int:
    """Writes a lease's file, whole and with a shared lock before it has its name; returns the descriptor."""
    expires = info.expires.isoformat() if info.expires else None
    document = {
        _MAGIC: 1,
        "dataset": info.dataset,
        "version": info.version,
        "owner": info.owner,
        "expires": expires,
    }
    scratch = node.locks / f".{info.id}"
    try:
        node.locks.mkdir(parents=True, exist_ok=True)
        fd = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, seal(document))
            if expires:
                os.fsync(fd)  # a lease by time outlives a loss of power
            fcntl.flock(fd, fcntl.LOCK_SH)
            scratch.rename(lease_path(node, version_id, info.id))
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise local_error("write a lease below", str(node.locks), error) from error
    return fd
