"""What only the Linux kernel tells: filesystems, mounts, boots, and syncfs."""

import contextlib
import ctypes
import gc
import math
import os
import struct
from pathlib import Path
from typing import NamedTuple

from dsagent.core.errors import UnfitRoot
from dsagent.core.space import Disk, Space

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_EMPTY_PATH = 0x1000
_STATX_MNT_ID_UNIQUE = 0x4000  # Linux 6.8
_SYNC_FILE_RANGE_WRITE = 2
_STATX_MASK_OFFSET, _STATX_MNT_ID_OFFSET, _STATX_BYTES = 0, 0x90, 0x100

_IN_SYSFS = ("ext4", "xfs", "f2fs")

NETWORK_FILESYSTEMS = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "lustre",
        "beegfs",
        "ceph",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.goofys",
        "fuse.rclone",
        "fuse.juicefs",
        "fuse.hdfs",
        "fuse.ceph",
        "fuse.mount-s3",
        "9p",
        "afs",
        "gpfs",
        "orangefs",
        "pvfs2",
        "wekafs",
    ]
)
NOT_FOR_DATA = frozenset(
    [
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "securityfs",
        "debugfs",
        "tracefs",
        "mqueue",
        "squashfs",
        "iso9660",
        "autofs",
        "bpf",
        "pstore",
        "configfs",
        "fusectl",
        "hugetlbfs",
        "efivarfs",
        "binfmt_misc",
        "rpc_pipefs",
        "nsfs",
        "ramfs",
    ]
)


class Mount(NamedTuple):
    """A line of mountinfo. `root` is the path in its filesystem; `receives`: mounts made below it elsewhere appear."""

    point: str
    kind: str
    root: str = "/"
    receives: bool = False


def mounts() -> list[Mount]:
    """All mounts of this process's mount namespace, in the order in which they were made."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        receives = any(field.startswith(("shared:", "master:")) for field in fields[6:])
        found.append(Mount(_unescaped(fields[4]), after.split(" ")[0], _unescaped(fields[3]), receives))
    return found


def _unescaped(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("unicode_escape")


def mount_of(path: str) -> Mount:
    """The mount that holds `path`, which need not exist."""
    resolved = os.path.realpath(path)
    best = Mount("/", "unknown")
    for mount in mounts():
        inside = mount.point in ("/", resolved) or resolved.startswith(mount.point + "/")
        if inside and len(mount.point) >= len(best.point):
            best = mount
    return best


def mount_token(path: str) -> str:
    """Names the kernel's boot and the mounted filesystem that holds `path`: while it stays the same, what was written
    can be read back even if it was never synced. Where the kernel shows its filesystems in sysfs it is the same in
    every mount namespace, so also for the next container.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{_superblock(path) or _unique_mount_id(path) or os.stat(path).st_dev}"


def _superblock(path: str) -> str:
    """What the kernel's filesystem object behind a path has for a name of its own, or nothing. ext4, XFS and f2fs make
    a folder in sysfs with each one, and inode numbers there are not given out again.
    """
    device = os.stat(path).st_dev
    try:
        name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
        found = {kind: f"/sys/fs/{kind}/{name}" for kind in _IN_SYSFS}
        return next((f"{kind}-{os.stat(at).st_ino}" for kind, at in found.items() if os.path.isdir(at)), "")
    except OSError:
        return ""


def _unique_mount_id(path: str) -> int:
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.statx(fd, b"", _AT_EMPTY_PATH, _STATX_MNT_ID_UNIQUE, buffer) != 0:
            return 0
    finally:
        os.close(fd)
    (mask,) = struct.unpack_from("=I", buffer, _STATX_MASK_OFFSET)
    (mount_id,) = struct.unpack_from("=Q", buffer, _STATX_MNT_ID_OFFSET)
    return int(mount_id) if mask & _STATX_MNT_ID_UNIQUE else 0


def sync_filesystem(path: str) -> None:
    """Waits until all that was written to the filesystem that holds `path` is on the device; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(fd)


def release_memory() -> None:
    """Collects what is garbage, and gives memory that was freed back to the kernel."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # another C library keeps it
        _LIBC.malloc_trim(0)


def start_writing_back(fd: int, offset: int, size: int) -> None:
    """Asks the kernel to write a part of a file to the device now, so that a later fsync has less to wait for."""
    _LIBC.sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


def cpu_quota() -> float:
    """The CPUs that the cgroup of this process may use, infinity if it has no quota."""
    quotas = [math.inf]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        quotas += _quotas(controllers, path)
    return min(quotas)


def _quotas(controllers: str, path: str) -> list[float]:
    """Of one line of /proc/self/cgroup: version 2 has no controllers named, version 1 has `cpu` among them."""
    try:
        if controllers == "":
            quota, period = Path(f"/sys/fs/cgroup{path}/cpu.max").read_text().split()
        elif "cpu" in controllers.split(","):
            folder = Path(f"/sys/fs/cgroup/{controllers}{path}")
            quota, period = (folder / "cpu.cfs_quota_us").read_text(), (folder / "cpu.cfs_period_us").read_text()
        else:
            return []
        return [int(quota) / int(period)] if quota != "max" and int(quota) > 0 else []
    except (OSError, ValueError):
        return []


class LinuxDisk:
    """The filesystem that holds a path, which need not exist yet."""

    def __init__(self, path: str) -> None:
        while not os.path.exists(path):
            path = os.path.dirname(path)
        self._path = path
        self._kind = mount_of(path).kind

    def measure(self) -> Disk:
        """What there is now."""
        found = os.statvfs(self._path)
        return Disk(
            total=Space(found.f_blocks * found.f_frsize, found.f_files),
            free=Space(found.f_bavail * found.f_frsize, found.f_favail),
            block=found.f_frsize,
            kind=self._kind,
        )


def refuse_network_filesystem(root: str) -> None:
    """Raises UnfitRoot if `root` would lie on a network filesystem, and names local ones with their free space."""
    mount = mount_of(root)
    if mount.kind not in NETWORK_FILESYSTEMS:
        return
    local = {}
    for other in mounts():
        if other.kind not in NETWORK_FILESYSTEMS | NOT_FOR_DATA and os.path.isdir(other.point):
            found = os.statvfs(other.point)
            local[other.point] = found.f_bavail * found.f_frsize
    best = sorted(local.items(), key=lambda item: -item[1])[:5]
    named = ", ".join(f"{point} ({free / 1e9:.1f} GB free)" for point, free in best if free)
    raise UnfitRoot(
        "use the root",
        root,
        f"it lies on a network filesystem ({mount.kind} at {mount.point})",
        f"choose a local one: {named}",
    )
