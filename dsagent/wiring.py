"""The one place where adapters meet services."""

import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from dsagent.adapters import linux
from dsagent.adapters.directory import DirectorySource, DirectoryStore
from dsagent.adapters.throttle import Throttle, ThrottledSource, ThrottledStore
from dsagent.core.ports import Location, Source, Store
from dsagent.core.space import Limits

if TYPE_CHECKING:
    from dsagent.agent.agent import Agent, Shares
    from dsagent.service.node import Meter, Node
    from dsagent.service.settings import Settings

MOST_WORKERS = 16


class Wiring:
    """Opens sources and stores by URL; each is opened once. The same here and in the workers.

    What is read from them passes the throttle, if there is one. `keep=False` opens them anew each time: a process
    that lives long would collect connections, and credentials.
    """

    def __init__(self, throttle: Throttle | None = None, keep: bool = True) -> None:
        self._throttle = throttle
        self._keep = keep
        self._sources: dict[Location, Source] = {}
        self._stores: dict[Location, Store] = {}

    @property
    def descriptor(self) -> int:
        """What the workers' opener is made from: the throttle's descriptor, or -1."""
        return self._throttle.descriptor if self._throttle else -1

    def source(self, location: Location) -> Source:
        """The source at a path or URL; raises UsageError for a protocol that is not installed."""
        source = self._sources.get(location)
        if source is None:
            source = _open_source(location)
            if self._throttle:
                source = ThrottledSource(source, self._throttle)
            if self._keep:
                self._sources[location] = source
        return source

    def store(self, location: Location) -> Store:
        """The store at a path or URL; raises UsageError for a protocol that is not installed."""
        store = self._stores.get(location)
        if store is None:
            store = _open_store(location)
            if self._throttle:
                store = ThrottledStore(store, self._throttle)
            if self._keep:
                self._stores[location] = store
        return store

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


def local_agent(settings: "Settings", shares: "Shares", throttle: Throttle) -> "Agent":
    """The agent of a root on this machine; raises UnfitRoot."""
    from dsagent.agent.agent import Agent  # noqa: PLC0415 - workers start without it
    from dsagent.agent.errand import ErrandMeter  # noqa: PLC0415 - likewise
    from dsagent.agent.events import EventLog  # noqa: PLC0415 - likewise

    node = replace(local_node(settings, ErrandMeter()), open=Wiring(throttle, keep=False))
    return Agent(node, shares, EventLog(), linux.release_memory)


def default_workers() -> int:
    """min(16, the CPUs that affinity mask and cgroup quota leave)."""
    return max(1, math.ceil(min(MOST_WORKERS, len(os.sched_getaffinity(0)), linux.cpu_quota())))
