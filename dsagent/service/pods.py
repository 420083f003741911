"""What each task uses: `pods/<task id>/<name>`, relative symlinks into `versions/`. One that leads there is a lease.

For a pod the task's id is its UID, and kubelet mounts `pods/<uid>/<name>` into it. Until its dataset is ready a link
dangles, so that kubelet waits, or leads to an empty folder for a pod that goes on without.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import NotCached, local_error
from dsagent.core.ports import CachedVersion
from dsagent.service.node import Node

_NOT_READY = "../not-ready"
_EMPTY = "../../empty"


def links(node: Node) -> Iterator[tuple[Path, DatasetKey, str]]:
    """Each link that leads to a version: its path, the dataset and the version's id. Raises NotPermitted."""
    for folder in _listed(node.pods):
        for path in _listed(folder):
            with contextlib.suppress(OSError, ValueError):
                parts = Path(os.path.normpath(path.parent / os.readlink(path))).relative_to(node.versions).parts
                if len(parts) >= 3:
                    yield path, DatasetKey(parts[0], parts[1]), parts[2]


def announce(node: Node, task: str, name: str, waits: bool = True) -> None:
    """Makes a task's link unless it is there: dangling, or to an empty folder for one that does not wait for the data.
    Raises NotPermitted, InsufficientStorage.
    """
    folder = node.pods / task
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        if not waits:
            (node.root / "empty").mkdir(exist_ok=True, mode=0o555)
        with contextlib.suppress(FileExistsError):
            os.symlink(_NOT_READY if waits else _EMPTY, folder / name)
    except OSError as error:
        raise local_error("make", str(folder / name), error) from error


def link(node: Node, version: CachedVersion, tasks: Collection[tuple[str, str]]) -> None:
    """Leases a version to tasks, each with the name of its link: all of them, in one decision.

    Raises NotCached if the version is not there any more, and NotPermitted, InsufficientStorage.
    """
    pods, data = str(node.pods), str(node.data(version))
    target = f"../..{data.removeprefix(str(node.root))}"
    with node.catalog.lock():
        if not os.path.isdir(data):
            raise NotCached("lease", f"{version.dataset}@{version.version}", "it was evicted meanwhile")
        for task, name in tasks:
            _point(f"{pods}/{task}", name, target)


def _point(folder: str, name: str, target: str) -> None:
    """Makes a link, or lets one that is there lead elsewhere: at every moment it leads somewhere."""
    try:
        try:
            _new_link(folder, name, target)
        except FileExistsError:
            scratch = f"{folder}/.{name}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)
            os.symlink(target, scratch)
            os.rename(scratch, f"{folder}/{name}")
    except OSError as error:
        raise local_error("make", f"{folder}/{name}", error) from error


def _new_link(folder: str, name: str, target: str) -> None:
    try:
        os.mkdir(folder, 0o755)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(folder, 0o755, exist_ok=True)
    os.symlink(target, f"{folder}/{name}")


def linked(node: Node, task: str, name: str) -> str | None:
    """Where a task's link leads to data, wherever the root is now; None if it does not."""
    path = node.pods / task / name
    if path.is_symlink() and os.readlink(path) != _EMPTY and path.is_dir():
        return os.path.normpath(path.parent / os.readlink(path))
    return None


def unlink(node: Node, task: str) -> None:
    """Ends all leases of a task; what it used was used until now. Raises NotPermitted."""
    folder = node.pods / task
    try:
        for entry in os.listdir(folder):
            with contextlib.suppress(OSError):  # only the order of eviction depends on it
                os.utime((folder / entry).resolve(strict=True).parent)
            if (folder / entry).is_symlink():
                (folder / entry).unlink()
            else:
                (folder / entry).rmdir()  # kubelet's, see link
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise local_error("remove", str(folder), error) from error


def _listed(folder: Path) -> list[Path]:
    """What is in a folder; nothing if its task ends just now."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise local_error("list", str(folder), error) from error
