"""`doctor`: whether the root is fit for its work, what was left lying about, and what to do."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from dsagent.core.errors import DsagentError, UnfitRoot
from dsagent.core.quantities import human_size
from dsagent.core.space import KEEP_FREE_INODES
from dsagent.service import records
from dsagent.service.node import Node, is_free, new_id
from dsagent.service.recovery import recover
from dsagent.service.results import Finding
from dsagent.service.space import headroom

OPEN_FILES = 1024
# The design was measured on these; others work as long as they keep POSIX's promises.
USUAL_FILESYSTEMS = ("ext4", "xfs", "btrfs", "tmpfs", "overlay")


def doctor(node: Node, rebuild: bool) -> list[Finding]:
    """Looks at the root; with `rebuild` makes the catalog anew from the disk before.

    Raises NotPermitted if it is to be rebuilt and cannot be.
    """
    if rebuild:
        records.rebuild(node)
        recover(node)
    checks = [_filesystem(node), _writable(node), _space(node), _inodes(node), _open_files()]
    catalog = _catalog(node)
    checks.append(catalog)
    if catalog.status != "fail":
        checks += [_versions(node), _reservations(node)]
    return [*checks, _leftovers(node)]


def _filesystem(node: Node) -> Finding:
    kind = node.disk.measure().kind
    if kind in USUAL_FILESYSTEMS:
        return _ok("filesystem", f"{node.root} is on {kind}")
    return Finding("filesystem", "warn", f"{node.root} is on {kind}", "ext4 and XFS are what dsagent is tested on")


def _writable(node: Node) -> Finding:
    """Whether files can be made there, and linked: an update shares unchanged files with the version before."""
    if not node.root.exists():
        return _ok("root", f"{node.root} is not there yet; the first dsctl cache makes it")
    first, second = node.root / f".{new_id()}", node.root / f".{new_id()}"
    try:
        first.touch()
        second.hardlink_to(first)
    except OSError as error:
        if first.exists():
            advice = "updates will fetch every file anew; use a root on ext4 or XFS"
            return Finding("root", "warn", f"hard links cannot be made: {error.strerror}", advice)
        advice = "check its owner and mode and how it is mounted; cached datasets can still be read"
        return Finding("root", "warn", f"{node.root} cannot be written: {error.strerror}", advice)
    finally:
        for path in (first, second):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return _ok("root", f"{node.root} can be written and has hard links")


def _space(node: Node) -> Finding:
    try:
        free = headroom(node).bytes
    except UnfitRoot:
        return Finding("space", "warn", "unknown without a catalog", "dsctl doctor --rebuild")
    if free > 0:
        return _ok("space", f"{human_size(free)} may still be used")
    advice = "dsctl evict --need SIZE, or lower --keep-free, or raise --capacity"
    return Finding("space", "warn", f"nothing may be used: {human_size(-free)} too little are free", advice)


def _inodes(node: Node) -> Finding:
    disk = node.disk.measure()
    if disk.total.inodes == 0:
        return _ok("inodes", "this filesystem has no limit of them")
    detail = f"{disk.free.inodes} of {disk.total.inodes} are free"
    if disk.free.inodes > disk.total.inodes * KEEP_FREE_INODES:
        return _ok("inodes", detail)
    return Finding("inodes", "warn", detail, "make the filesystem with more inodes (mkfs.ext4 -i 4096), or use XFS")


def _open_files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES:
        return _ok("open files", f"the limit is {soft}")
    return Finding("open files", "warn", f"the limit is {soft}", f"raise it to {OPEN_FILES}: ulimit -n {OPEN_FILES}")


def _catalog(node: Node) -> Finding:
    try:
        versions = node.catalog.versions()
        node.catalog.reservations()
    except DsagentError as error:
        return Finding("catalog", "fail", error.cause, error.hint)
    return _ok("catalog", f"it lists {len(versions)} versions ({node.catalog.engine})")


def _versions(node: Node) -> Finding:
    known = {version.id for version in node.catalog.versions()}
    folders = list(map(Path, records.folders(node.versions)))
    unlisted = [folder for folder in folders if folder.name not in known]
    damaged = [folder for folder in folders if (folder / "data").exists() and not records.read_record(folder)]
    if damaged:
        advice = f"remove them and cache again: {_names(damaged)}"
        return Finding("versions", "warn", f"{len(damaged)} folders have no valid record", advice)
    if unlisted:
        advice = "the next dsctl cache puts it right, or: dsctl doctor --rebuild"
        return Finding("versions", "warn", f"the catalog lacks {_names(unlisted)}", advice)
    unsure = len(known) - len(node.shown())
    if unsure:
        advice = "they are read again and shown by the next dsctl cache or ls"
        return Finding("versions", "warn", f"{unsure} versions may not have survived a crash", advice)
    return _ok("versions", f"the catalog and the disk agree on {len(folders)}")


def _reservations(node: Node) -> Finding:
    held = node.catalog.reservations()
    dead = [reservation for reservation in held if is_free(node.lock(reservation.flight))]
    if not dead:
        return _ok("reservations", f"{len(held)} flights are in progress")
    size = sum(reservation.space.bytes for reservation in dead)
    advice = "run the same dsctl cache again to go on, or any other: it drops the promises"
    return Finding("reservations", "warn", f"{len(dead)} killed flights have {human_size(size)} promised", advice)


def _leftovers(node: Node) -> Finding:
    staged = [folder for folder in _listed(node.staging) if is_free(node.lock(folder.name))]
    trash = list(_listed(node.trash))
    if not staged and not trash:
        return _ok("leftovers", "there are none")
    detail = f"{len(staged)} flights were killed and {len(trash)} folders wait for their deletion"
    advice = "the same dsctl cache goes on with a flight; the trash is emptied by the next dsctl cache or evict"
    return Finding("leftovers", "warn", detail, advice)


def _listed(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from (folder / name for name in os.listdir(folder))


def _names(folders: list[Path]) -> str:
    return ", ".join(map(str, folders[:5])) + (f" and {len(folders) - 5} more" if len(folders) > 5 else "")


def _ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail, "")
