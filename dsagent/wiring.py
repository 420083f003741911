"""The one place where adapters meet services."""

import math
import os
from typing import TYPE_CHECKING

from dsagent.adapters import linux
from dsagent.adapters.directory import DirectorySource, DirectoryStore
from dsagent.core.ports import Location, Source, Store
from dsagent.core.space import Limits

if TYPE_CHECKING:
    from dsagent.service.node import Meter, Node
    from dsagent.service.settings import Settings

MOST_WORKERS = 16


class Wiring:
    """Opens sources and stores by URL; each is opened once. The same here and in the workers."""

    def __init__(self) -> None:
        self._sources: dict[Location, Source] = {}
        self._stores: dict[Location, Store] = {}

    def source(self, location: Location) -> Source:
        """The source at a path or URL; raises UsageError for a protocol that is not installed."""
        if location not in self._sources:
            self._sources[location] = _open_source(location)
        return self._sources[location]

    def store(self, location: Location) -> Store:
        """The store at a path or URL; raises UsageError for a protocol that is not installed."""
        if location not in self._stores:
            self._stores[location] = _open_store(location)
        return self._stores[location]

    def local_store(self, folder: str) -> Store:
        """A folder of the root with a version's manifest; it is synced together with the version's data."""
        return DirectoryStore(Location(folder), durable=False)


def _open_source(location: Location) -> Source:
    protocol, path = _split(location.url)
    if protocol == "file":
        return DirectorySource(Location(path))
    if protocol == "s3":
        from dsagent.adapters.objects import ObjectSource  # noqa: PLC0415 - optional, and slow to import

        return ObjectSource(location)
    from dsagent.adapters.filesystems import FilesystemSource  # noqa: PLC0415 - optional, and slow to import

    return FilesystemSource(location)


def _open_store(location: Location) -> Store:
    protocol, path = _split(location.url)
    if protocol == "file":
        return DirectoryStore(Location(path))
    if protocol == "s3":
        from dsagent.adapters.objects import ObjectStore  # noqa: PLC0415 - optional, and slow to import

        return ObjectStore(location)
    from dsagent.adapters.filesystems import FilesystemStore  # noqa: PLC0415 - optional, and slow to import

    return FilesystemStore(location)


def _split(url: str) -> tuple[str, str]:
    protocol, separator, path = url.partition("://")
    if not separator:
        return "file", os.path.abspath(url)
    return protocol, path


def local_node(settings: "Settings", meter: "Meter") -> "Node":
    """The cache below a root on this machine; raises UnfitRoot if the root lies on a network filesystem."""
    from dsagent.adapters.sqlite_catalog import SqliteCatalog  # noqa: PLC0415 - workers start without it
    from dsagent.service.node import Node, SystemClock  # noqa: PLC0415 - likewise

    root = settings.root
    linux.refuse_network_filesystem(str(root))
    return Node(
        root=root,
        catalog=SqliteCatalog(root / "catalog.sqlite", root),
        disk=linux.LinuxDisk(str(root)),
        clock=SystemClock(),
        limits=Limits(settings.capacity, settings.keep_free),
        open=Wiring(),
        meter=meter,
        workers=settings.workers or default_workers(),
        mount_token=linux.mount_token,
        sync=linux.sync_filesystem,
    )


def default_workers() -> int:
    """min(16, the CPUs that affinity mask and cgroup quota leave)."""
    return max(1, math.ceil(min(MOST_WORKERS, len(os.sched_getaffinity(0)), linux.cpu_quota())))
