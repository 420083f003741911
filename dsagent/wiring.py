"""The one place where adapters meet services."""

import os

from dsagent.adapters.directory import DirectorySource, DirectoryStore
from dsagent.core.ports import Location, Source, Store


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
