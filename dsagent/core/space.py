"""Space on the node's disk: what a dataset needs, what is free, and what may be promised."""

from typing import NamedTuple

from dsagent.core.entries import BLOCK
from dsagent.core.manifest import Totals

HEADROOM = 1.2  # a new dataset must fit 1.2 times


class Space(NamedTuple):
    """Bytes and inodes; differences may be negative."""

    bytes: int = 0
    inodes: int = 0

    def __add__(self, other: "Space") -> "Space":  # type: ignore[override]
        return Space(self.bytes + other.bytes, self.inodes + other.inodes)

    def __sub__(self, other: "Space") -> "Space":
        return Space(self.bytes - other.bytes, self.inodes - other.inodes)

    def scaled(self, factor: float) -> "Space":
        """Both, times `factor`, rounded up."""
        return Space(-int(-self.bytes * factor // 1), -int(-self.inodes * factor // 1))

    def within(self, other: "Space") -> "Space":
        """Each part, but not more than the other's."""
        return Space(min(self.bytes, other.bytes), min(self.inodes, other.inodes))

    def covers(self, other: "Space") -> bool:
        """Whether both parts are at least the other's."""
        return self.bytes >= other.bytes and self.inodes >= other.inodes


class Disk(NamedTuple):
    """A filesystem: sizes in bytes, free as an ordinary user has it. `total.inodes` is 0 where inodes have no limit."""

    total: Space
    free: Space
    block: int
    kind: str


class Limits(NamedTuple):
    """How much of the disk the cache may use. `capacity`: bytes for all versions together, None for no limit of its
    own; `keep_free`: what must stay free on the filesystem, None for the default.
    """

    capacity: int | None = None
    keep_free: int | None = None


KEEP_FREE_BYTES = 0.15  # of the filesystem: below, kubelet begins to remove images
KEEP_FREE_INODES = 0.05


def available(disk: Disk, limits: Limits, used: Space, reserved: Space) -> Space:
    """What may still be promised: free space less promises, the part kept free and the rest of the capacity."""
    keep = int(disk.total.bytes * KEEP_FREE_BYTES) if limits.keep_free is None else limits.keep_free
    free = disk.free.bytes - reserved.bytes - keep
    if limits.capacity is not None:
        free = min(free, limits.capacity - used.bytes - reserved.bytes)
    if disk.total.inodes == 0:
        return Space(free, 1 << 62)
    return Space(free, disk.free.inodes - reserved.inodes - int(disk.total.inodes * KEEP_FREE_INODES))


def tree_space(totals: Totals, block: int) -> Space:
    """An upper bound of what a tree takes: sizes rounded up to blocks, directories, inodes.

    ext4 fills a directory's blocks to 50-75 %, so names count twice.
    """
    files = totals.rounded_bytes + totals.files * max(0, block - BLOCK)
    directories = (totals.directories + 1) * block + 2 * totals.name_bytes
    return Space(files + directories, totals.inodes)


# ext4 keeps the names of one directory in a tree of at most two levels of index blocks (three with large_dir, which
# few filesystems have); 8 bytes an index entry, leaves at best three quarters full.
_INDEX_ENTRY = 8
_LEAF_FILL = 0.75


def largest_directory(disk: Disk) -> int | None:
    """Bytes of directory entries that one directory can hold, or None where there is no limit to speak of."""
    if disk.kind != "ext4":
        return None
    fanout = disk.block // _INDEX_ENTRY - 2
    return int(fanout * fanout * disk.block * _LEAF_FILL)
