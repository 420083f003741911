"""How entries are cut into jobs, frames and bundles: each plan is asked about entry after entry, in path order."""

from typing import NamedTuple

from dsagent.core.entries import FILE, Stamp
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.tarstream import header_length, padding


class Group(NamedTuple):
    """Entries with the same group are worked on together."""

    bundle: int
    job: int


class BundlePlan:
    """Groups entries by frame and bundle: a frame holds up to 8 MiB, or one large file in pieces; a bundle up to
    `files` files and `size` plain bytes, or one larger file.
    """

    def __init__(self, files: int, size: int) -> None:
        self._files = files
        self._size = size
        self._group = Group(0, 0)
        self._bundle_files = self._bundle_bytes = self._frame_bytes = 0

    def __call__(self, stamp: Stamp) -> Group:
        """The group of the next entry."""
        path, kind, _executable, size, _mtime_ns, _token = stamp
        is_file = kind == FILE
        weight = header_length(path) + size + padding(size) if is_file else header_length(path)
        full = self._bundle_files + is_file > self._files or self._bundle_bytes + weight > self._size
        if self._bundle_bytes and full:
            self._group = Group(self._group.bundle + 1, self._group.job + 1)
            self._bundle_files = self._bundle_bytes = self._frame_bytes = 0
        elif self._frame_bytes and self._frame_bytes + weight > FRAME_BYTES:
            self._group = Group(self._group.bundle, self._group.job + 1)
            self._frame_bytes = 0
        self._bundle_files += is_file
        self._bundle_bytes += weight
        self._frame_bytes += weight
        return self._group


class CopyPlan:
    """Groups files to be copied: up to `files`, and up to `size` bytes or one larger file."""

    def __init__(self, files: int, size: int) -> None:
        self._files = files
        self._size = size
        self._group = Group(0, 0)
        self._job_files = self._job_bytes = 0

    def __call__(self, stamp: Stamp) -> Group:
        """The group of the next file."""
        if self._job_files and (self._job_files >= self._files or self._job_bytes + stamp.size > self._size):
            self._group = Group(0, self._group.job + 1)
            self._job_files = self._job_bytes = 0
        self._job_files += 1
        self._job_bytes += stamp.size
        return self._group
