"""What must hold: the leases that are certain, the tasks that must be there, and the contents of versions."""

import hashlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.world import World
from tests.support import trees
from tests.support.trees import Tree

FOREVER = float("inf")


@dataclass(frozen=True)
class Use:
    """A lease that is certain. `until`: Unix time."""

    dataset: str
    version: str
    path: Path
    until: float = FOREVER


@dataclass
class TaskModel:
    """A task that its client put and has not deleted. `ready`: its datasets as they were shown when they were."""

    id: str
    body: dict[str, Any]
    ready: list[dict[str, Any]] | None = None
    failed: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether it stays until it is deleted."""
        return "keep_seconds" not in self.body


@dataclass
class Model:
    """Beside the agent. Clients say what they are certain of; a violation ends the soak."""

    world: World
    uses: dict[object, Use] = field(default_factory=dict)
    tasks: dict[str, TaskModel] = field(default_factory=dict)
    timed: dict[tuple[str, str, str], float] = field(default_factory=dict)  # dataset, version, owner -> until
    doubtful: dict[tuple[str, str, str], float] = field(default_factory=dict)  # as timed; an agent was killed beside it
    processes: set[str] = field(default_factory=set)  # ids of leases
    lock: threading.RLock = field(default_factory=threading.RLock)
    _version_of: dict[bytes, str] = field(default_factory=dict)
    _content_of: dict[str, bytes] = field(default_factory=dict)

    def hold(self, key: object, use: Use) -> None:
        """From now on the version must be there."""
        with self.lock:
            self.uses[key] = use

    def drop(self, key: object) -> None:
        """From now on it need not."""
        with self.lock:
            self.uses.pop(key, None)

    def certain(self) -> dict[object, Use]:
        """What must be there now."""
        with self.lock:
            return dict(self.uses)

    def assert_in_place(self) -> None:
        """No leased version is missing."""
        for key, use in self.certain().items():
            if not os.path.isdir(use.path):
                assert self.certain().get(key) is not use or use.until <= time.time(), f"{key} has lost {use}"

    def assert_whole(self, dataset: str, version: str, path: Path) -> None:
        """What lies at `path` is, read-only, a content that the dataset's source has had, and no other version."""
        found = trees.look(path)
        assert self.world.origin_of(dataset).knows(found), f"{path} of {dataset} is nothing that its source ever was"
        trees.assert_published(path, found)
        digest = _digest(found)
        with self.lock:
            assert self._version_of.setdefault(digest, version) == version, f"{dataset}: one content, two versions"
            assert self._content_of.setdefault(version, digest) == digest, f"{version}: one version, two contents"


def _digest(tree: Tree) -> bytes:
    """Of the content alone, as a version's is."""
    digest = hashlib.sha256()
    for path, seen in sorted(tree.items()):
        digest.update(repr((path, seen.kind, seen.executable, seen.size, seen.content)).encode())
    return digest.digest()
