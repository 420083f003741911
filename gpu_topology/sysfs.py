"""Reading sysfs, or a recording of it. Whatever cannot be read is not there: devices go while they are read."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

# A directory's names; a file's text; "-> target" for a symbolic link.
Tree: TypeAlias = dict[str, "Tree | str"]

LINK = "-> "
_MAX_CPU = 65_535  # a larger number in a list is no CPU


class Sysfs(Protocol):
    """A read-only tree; paths are relative to its root, without a leading slash."""

    def text(self, path: str) -> str | None:
        """A file's content, stripped; None if there is no such file or it cannot be read."""
        ...

    def names(self, path: str, prefix: str = "") -> list[str]:
        """What a directory holds under names that begin so, sorted; nothing if there is none."""
        ...

    def target(self, path: str) -> str | None:
        """Where a symbolic link leads, relative to the root; None if it is none or leads out of it."""
        ...


class Directory:
    """sysfs as it is mounted: /sys, or a host's below another root."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)

    def text(self, path: str) -> str | None:
        try:
            with open(f"{self._root}/{path}", "rb") as file:
                return file.read(65_536).decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            return None

    def names(self, path: str, prefix: str = "") -> list[str]:
        try:
            return sorted(name for name in os.listdir(f"{self._root}/{path}") if name.startswith(prefix))
        except (OSError, ValueError):
            return []

    def target(self, path: str) -> str | None:
        try:
            return resolve(path, os.readlink(f"{self._root}/{path}"))
        except (OSError, ValueError):
            return None


class Recorded:
    """A recorded tree."""

    def __init__(self, tree: Mapping[str, object]) -> None:
        self._tree = tree

    def text(self, path: str) -> str | None:
        found = self._find(path)
        return found.strip() if isinstance(found, str) and not found.startswith(LINK) else None

    def names(self, path: str, prefix: str = "") -> list[str]:
        found = self._find(path)
        return sorted(name for name in found if name.startswith(prefix)) if isinstance(found, dict) else []

    def target(self, path: str) -> str | None:
        found = self._find(path)
        return resolve(path, found.removeprefix(LINK)) if isinstance(found, str) and found.startswith(LINK) else None

    def _find(self, path: str) -> object:
        here: object = self._tree
        for name in path.split("/"):
            if not isinstance(here, Mapping):
                return None
            here = here.get(name)
        return here


class Recorder:
    """Another tree, of which it keeps what is read of it."""

    def __init__(self, sysfs: Sysfs) -> None:
        self._sysfs = sysfs
        self.tree: Tree = {}

    def text(self, path: str) -> str | None:
        text = self._sysfs.text(path)
        if text is not None:
            self._keep(path, text)
        return text

    def names(self, path: str, prefix: str = "") -> list[str]:
        names = self._sysfs.names(path, prefix)
        for name in names:
            self._keep(f"{path}/{name}", {})
        return names

    def target(self, path: str) -> str | None:
        target = self._sysfs.target(path)
        if target is not None:
            up = os.path.relpath(target, os.path.dirname(path))
            self._keep(path, f"{LINK}{up}")
        return target

    def _keep(self, path: str, value: Tree | str) -> None:
        *folders, name = path.split("/")
        here = self.tree
        for folder in folders:
            below = here.get(folder)
            if not isinstance(below, dict):
                below = here[folder] = {}
            here = below
        if value or name not in here:
            here[name] = value


def resolve(path: str, target: str) -> str | None:
    """Where a link at `path` leads, relative to the root; None if that is outside."""
    end = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return None if end.startswith(("..", "/")) else end


def number(text: str | None, unknown: int = -1) -> int:
    """A whole number, decimal or with 0x; `unknown` if it is none."""
    try:
        return int(text or "", 0) if len(text or "") < 32 else unknown
    except ValueError:
        return unknown


def cpu_list(text: str | None) -> tuple[int, ...]:
    """The numbers of a list such as 0-3,8; parts that are no such list are left out."""
    found: set[int] = set()
    for part in (text or "").split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part, re.ASCII)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            found.update(range(first, min(last, _MAX_CPU) + 1))
    return tuple(sorted(found))
