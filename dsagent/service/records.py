"""What each version's own folder says of it, so that the catalog can be made anew from the disk."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import BadStore, UnfitRoot, local_error
from dsagent.core.ports import CachedVersion, Decision
from dsagent.core.sealed import seal, unseal
from dsagent.core.space import Space
from dsagent.service.node import Node, held, log, new_id

CATALOG = "catalog.sqlite"
AT_ONCE = 20  # folders, in about half a millisecond

_MAGIC = "dsagent-cached"
_RECORD = "manifest/record.json"
_SYNCED = "manifest/synced"
_FIELDS = frozenset(
    {
        *(
            "namespace",
            "name",
            "version",
            "source",
            "fingerprint",
            "files",
            "bytes",
            "allocated",
            "published",
        ),
        *("mount", "shares"),
    }
)


def write_record(folder: Path, version: CachedVersion) -> None:
    """Writes `manifest/record.json` below `folder`, the version's or its flight's; raises OSError."""
    document = {
        _MAGIC: 1,
        "namespace": version.dataset.namespace,
        "name": version.dataset.name,
        "version": version.version,
        "source": version.source,
        "fingerprint": version.fingerprint,
        "files": version.files,
        "bytes": version.bytes,
        "allocated": [version.allocated.bytes, version.allocated.inodes],
        "published": version.published.isoformat(),
        "mount": version.mount,
        "shares": version.shares,
    }
    # Published files are never opened for writing: a new mount's record is a new file.
    fresh = folder / f"{_RECORD}.new"
    fresh.write_bytes(seal(document))
    fresh.replace(folder / _RECORD)


def write_synced(folder: Path) -> None:
    """Records that all of the version is on the device; raises OSError."""
    (folder / _SYNCED).touch()


def read_record(folder: Path) -> CachedVersion | None:
    """The version that lies in `folder`, or None if its data or a valid record are not there."""
    try:
        document = unseal((folder / _RECORD).read_bytes(), str(folder / _RECORD), _MAGIC, _FIELDS)
        if not (folder / "data").is_dir():
            return None
        size, inodes = document["allocated"]
        return CachedVersion(
            id=folder.name,
            dataset=DatasetKey(document["namespace"], document["name"]),
            version=document["version"],
            source=document["source"],
            fingerprint=document["fingerprint"],
            files=document["files"],
            bytes=document["bytes"],
            allocated=Space(size, inodes),
            published=datetime.fromisoformat(document["published"]),
            last_used=datetime.fromtimestamp(folder.stat().st_mtime, UTC),
            synced=(folder / _SYNCED).exists(),
            mount=document["mount"],
            shares=document["shares"],
        )
    except (OSError, BadStore, TypeError, ValueError):
        return None


def folders(versions: Path) -> Iterator[str]:
    """All folders of versions, whole or not: `<namespace>/<name>/<id>`; raises OSError."""
    for namespace in _folders(str(versions)):
        for name in _folders(namespace):
            yield from _folders(name)


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def recorded(versions: Path) -> list[CachedVersion]:
    """All versions that lie whole below `versions`, oldest published first; raises OSError."""
    found = [record for folder in folders(versions) if (record := read_record(Path(folder))) is not None]
    return sorted(found, key=lambda version: (version.published, version.id))


def refresh(node: Node, pause: Callable[[], None]) -> None:
    """Makes the catalog equal to what lies on the disk if the names differ; a writing verb begins with it. `pause` is
    called after every few folders.
    """
    on_disk = set()
    for number, folder in enumerate(folders(node.versions), 1):
        on_disk.add(os.path.basename(folder))
        if number % AT_ONCE == 0:
            pause()
    # What came or went meanwhile makes a difference, too; a decision sees all as it is.
    if on_disk != node.catalog.ids():
        with node.catalog.decide() as decision:
            reconcile(node, decision)


def reconcile(node: Node, decision: Decision) -> None:
    """Inside a decision: adds to the catalog what only the disk has; rests of killed flights go to the trash.

    The catalog itself drops rows whose folders are gone. A flight renames `manifest/` and then `data/` into
    place within one decision, so a folder without `data/` that is seen from inside another decision is dead.
    """
    known = {version.id for version in node.catalog.versions()}
    for folder in map(Path, folders(node.versions)):
        if folder.name in known:
            continue
        record = read_record(folder)
        if record is not None:
            log.info("found %s again in %s", record.version, folder)
            seal_data(folder)  # its publisher may have been killed just before
            decision.add(record)
        elif not (folder / "data").exists():
            discard(node, folder)


def seal_data(folder: Path) -> None:
    """Makes `data` itself read-only. Only once it has its place: a read-only directory cannot be moved to another
    parent. Raises NotPermitted.
    """
    try:
        (folder / "data").chmod(0o555)
    except OSError as error:
        raise local_error("publish", str(folder), error) from error


def discard(node: Node, folder: Path) -> None:
    """Inside a decision: moves a version's folder to the trash, under a new name. Raises NotPermitted."""
    try:
        node.trash.mkdir(exist_ok=True)
        folder.rename(node.trash / f"{folder.name}.{new_id()}")
    except OSError as error:
        raise local_error("remove", str(folder), error) from error
    for parent in (folder.parent, folder.parent.parent):
        with contextlib.suppress(OSError):  # other versions are left in it
            parent.rmdir()


def rebuild(node: Node) -> None:
    """Makes the catalog equal to the disk, and anew if it cannot be read. Leases are files and stay."""
    node.prepare()
    with held(node.locks / "rebuild", waiting=lambda: time.sleep(0.1)):
        try:
            node.catalog.reservations()
            _reconcile(node)  # a decision reads the file anew, whatever a reader has in its memory
        except UnfitRoot:
            for file in node.root.glob(f"{CATALOG}*"):
                file.rename(node.trash / f"{file.name}.{new_id()}")
            _reconcile(node)


def _reconcile(node: Node) -> None:
    with node.catalog.decide() as decision:
        reconcile(node, decision)
