"""Files that a version on disk has already: the job that hard-links them."""

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dsagent.engine.crew import Tools
from dsagent.engine.tree import Tree

JOB_FILES = 4_000


class Linked(NamedTuple):
    """A file as it was recorded when the donor was published."""

    path: bytes
    executable: bool
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Link:
    """Hard-links files below `into` to those at the same paths below `donor`."""

    donor: str
    into: str
    files: tuple[Linked, ...]

    def perform(self, _tools: Tools) -> list[int]:
        """The indexes of the files that could not be linked, or that differ from what was recorded: to be fetched."""
        missing = []
        with Tree(self.donor) as donor, Tree(self.into) as tree:
            for index, file in enumerate(self.files):
                if not _link(donor, tree, file):
                    missing.append(index)
        return missing


def _link(donor: Tree, tree: Tree, file: Linked) -> bool:
    try:
        if not is_recorded(donor, file):
            return False
        tree.link(file.path, donor)
    except OSError:  # EMLINK, EPERM, EXDEV, or the donor lost the file
        return False
    return True


def is_recorded(tree: Tree, file: Linked) -> bool:
    """Whether size, mode and mtime are those that were recorded; raises OSError if the file is not there."""
    found = tree.status(file.path)
    mode = stat.S_IFREG | (0o555 if file.executable else 0o444)
    return (found.st_size, found.st_mode, found.st_mtime_ns) == (file.size, mode, file.mtime_ns)


def link_jobs(donor: str, into: str, files: Sequence[Linked]) -> list[Link]:
    """Jobs of up to JOB_FILES."""
    return [Link(donor, into, tuple(files[at : at + JOB_FILES])) for at in range(0, len(files), JOB_FILES)]
