"""Removing versions: a rename into the trash inside a decision, a deletion outside; and what that frees."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence

from dsagent.core.errors import local_error
from dsagent.core.ports import CachedVersion, Decision
from dsagent.core.space import Space
from dsagent.engine.tree import open_below, remove_tree
from dsagent.service.node import Node, held, is_free, new_id
from dsagent.service.records import discard, write_record

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SECTOR = 512  # the unit of st_blocks


def remove(node: Node, decision: Decision, versions: Sequence[CachedVersion]) -> None:
    """Inside a decision: makes versions disappear, each in one rename; `empty_trash` frees their space.

    Raises NotPermitted.
    """
    for dataset in {version.dataset for version in versions if version.shares}:
        _bequeath(node, decision, [version for version in versions if version.dataset == dataset])
    for version in versions:
        discard(node, node.folder(version))
        decision.remove(version.id)


def _bequeath(node: Node, decision: Decision, versions: Sequence[CachedVersion]) -> None:
    """Counts files that stay, because another version of the dataset has links to them, as that version's."""
    going = {version.id for version in versions}
    heirs = [v for v in node.catalog.versions() if v.dataset == versions[0].dataset and v.shares and v.id not in going]
    if heirs:
        left = sum((version.allocated for version in versions), Space()) - freed_by(node, versions)
        heir = heirs[-1]._replace(allocated=heirs[-1].allocated + left)
        decision.add(heir)
        write_record(node.folder(heir), heir)


def empty_trash(node: Node, wait: bool = True) -> None:
    """Deletes what lies in the trash; only one process at a time does.

    With `wait` it is gone afterwards, whoever deleted it; without, another process is left to do it. Raises
    NotPermitted.
    """
    lock = node.locks / "trash"
    try:
        if not node.trash.is_dir() or not os.listdir(node.trash) or not (wait or is_free(lock)):
            return
        with held(lock, waiting=lambda: time.sleep(0.05)):
            for name in os.listdir(node.trash):
                if (node.trash / name).is_dir():
                    remove_tree(str(node.trash / name))
                else:
                    (node.trash / name).unlink()
    except OSError as error:
        raise local_error("empty", str(node.trash), error) from error


def set_aside(node: Node, flight: str) -> bool:
    """Moves what a killed flight left to the trash; whether it was there and nobody is at work on it.

    In one rename, under the flight's lock: who resumes it meanwhile would have its files deleted as it makes them.
    Raises NotPermitted.
    """
    try:
        fd = os.open(node.lock(flight), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(node.staging / flight, node.trash / new_id())
        finally:
            os.close(fd)
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        raise local_error("remove", str(node.staging / flight), error) from error
    return True


class Freed:
    """What removing versions would free: a file counts once all of its links lie in them.

    Versions that share no files are taken at their recorded size. Asked about a growing list, each version is
    walked once; 1.28 million files that are linked elsewhere too take 82 MiB.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._walked: list[str] = []
        self._seen: dict[int, int] = {}
        self._freed = Space()

    def __call__(self, versions: Sequence[CachedVersion]) -> Space:
        """What is freed when all of `versions` go; raises NotPermitted."""
        walked = [version.id for version in versions[: len(self._walked)]]
        if walked != self._walked:
            self._walked, self._seen, self._freed = [], {}, Space()
        for version in versions[len(self._walked) :]:
            self._freed += self._walk(version) if version.shares else version.allocated
            self._walked.append(version.id)
        return self._freed

    def _walk(self, version: CachedVersion) -> Space:
        sectors = inodes = 0
        data = str(self._node.data(version))
        try:
            for found in _lstat_all(data):
                if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                    links = self._seen.get(found.st_ino, 0) + 1
                    if links < found.st_nlink:
                        self._seen[found.st_ino] = links
                        continue
                    del self._seen[found.st_ino]
                sectors += found.st_blocks
                inodes += 1
        except FileNotFoundError:  # somebody else has just removed it: who only looks decides nothing
            return Space()
        except OSError as error:
            raise local_error("measure", data, error) from error
        return Space(sectors * _SECTOR, inodes)


def freed_by(node: Node, versions: Sequence[CachedVersion]) -> Space:
    """What removing all of `versions` frees; raises NotPermitted."""
    return Freed(node)(versions)


def left_by_attempts(node: Node, flight: str) -> Space:
    """What killed attempts at a flight left in its folder; files that a version has too take no space of their own."""
    sectors = inodes = 0
    try:
        for found in _lstat_all(str(node.staging / flight)):
            if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
                sectors += found.st_blocks
                inodes += 1
    except FileNotFoundError:  # there are none, or somebody else has just removed them
        return Space()
    return Space(sectors * _SECTOR, inodes)


def _lstat_all(root: str) -> Iterator[os.stat_result]:
    """lstat of everything in a tree of any depth, the root included."""
    top = os.open(root, _DIRECTORY)
    try:
        yield os.fstat(top)
        pending = [b""]
        while pending:
            directory = pending.pop()
            fd = open_below(top, directory, _DIRECTORY) if directory else os.dup(top)
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        found = entry.stat(follow_symlinks=False)
                        yield found
                        if stat.S_ISDIR(found.st_mode):
                            name = os.fsencode(entry.name)
                            pending.append(directory + b"/" + name if directory else name)
            finally:
                os.close(fd)
    finally:
        os.close(top)
