"""Files that a version on disk has already: the job that hard-links them."""

import os
import stat
from typing import NamedTuple

from dsagent.engine.crew import Tools
from dsagent.engine.tree import Tree

JOB_FILES = 4_000


# A file as it was recorded when the donor was published: path, executable, size, mtime_ns. A plain tuple, because a
# million of them are pickled.
Linked = tuple[bytes, bool, int, int]


class Link(NamedTuple):
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
    path, executable, size, mtime_ns = file
    mode = stat.S_IFREG | (0o555 if executable else 0o444)
    try:
        source, name = donor.parent(path)
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if (found.st_size, found.st_mode, found.st_mtime_ns) != (size, mode, mtime_ns):
            return False
        tree.link(path, source)
    except OSError:  # EMLINK, EPERM, EXDEV, or the donor lost the file
        return False
    return True
