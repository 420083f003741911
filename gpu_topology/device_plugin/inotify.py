"""Which names appear in a folder: inotify(7), through the C library.

Kubelet says that it has started anew only by removing all sockets of plugins and making its own, so a plugin has to
know of that socket at once; the standard library has no call for it.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpu_topology.errors import TopologyError

_CREATED = 0x100 | 0x080  # IN_CREATE, IN_MOVED_TO
_HEAD = struct.Struct("iIII")  # of struct inotify_event: watch, mask, cookie, length of the name
_MOST_BYTES = 65_536


@contextmanager
def watched(folder: Path) -> Iterator[tuple[int, Callable[[], list[str]]]]:
    """A descriptor that can be read when something is made in the folder, and what then gives the names.

    Raises TopologyError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(folder), _CREATED) < 0:
            cause = os.strerror(ctypes.get_errno())
            raise TopologyError("watch", str(folder), cause, "name kubelet's folder by --kubelet-folder")
        yield descriptor, lambda: list(_names(os.read(descriptor, _MOST_BYTES)))
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _names(events: bytes) -> Iterator[str]:
    at = 0
    while at < len(events):
        *_, length = _HEAD.unpack_from(events, at)
        at += _HEAD.size
        yield os.fsdecode(events[at : at + length].rstrip(b"\0"))
        at += length
