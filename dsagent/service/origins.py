"""Where a dataset comes from: a store's version, or an unpacked source as its listing shows it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dsagent.core.datasets import (
    LOCAL_NAMESPACE,
    DatasetKey,
    check_version,
    dataset_key,
    name_from_source,
    version_text,
)
from dsagent.core.digest import TreeDigest
from dsagent.core.entries import FILE, Entry
from dsagent.core.errors import NotCached
from dsagent.core.join import beside
from dsagent.core.layout import POINTER_KEY, STORE_KEY, manifest_key
from dsagent.core.manifest import Manifest, Totals, decode_pointer, decode_store
from dsagent.core.ports import CachedVersion, Location, Source, Store
from dsagent.core.space import Space, tree_space
from dsagent.engine.changes import entry_of, known_entries, recall_no_file, recall_stamped
from dsagent.engine.crew import Crew, Opener
from dsagent.engine.fetch import Donor, Fetch, hash_source
from dsagent.engine.manifests import read_entries, read_manifest
from dsagent.engine.scan import Listing
from dsagent.service.node import Node, flight_id

Check = Literal["fingerprint", "content", "never"]


@dataclass(frozen=True)
class CacheRequest:
    """What is to be made present.

    `check` says how a source is compared with what is here: by its listing, by reading everything, or not at all.
    `version` pins a version. `lease_owner` asks for a lease of `lease_seconds`.
    """

    source: Location
    name: str | None = None
    version: str | None = None
    check: Check = "fingerprint"
    replace_source: bool = False
    pack_to: Location | None = None
    lease_owner: str | None = None
    lease_seconds: float = 7200
    skip_special: bool = False
    namespace: str = LOCAL_NAMESPACE


def store_dataset(open_: Opener, location: Location) -> str | None:
    """The dataset whose versions the store at `location` holds, or None if there is no store.

    Raises BadStore if there is a dsagent-store.json that is not a valid one.
    """
    data = open_.store(location).find(STORE_KEY)
    return decode_store(data, f"{location.url}/{STORE_KEY}") if data is not None else None


def current_version(store: Store) -> str:
    """The version that a store's pointer names; raises BadStore."""
    return decode_pointer(store.read(POINTER_KEY), f"{store.location.url}/{POINTER_KEY}")


class PackedOrigin:
    """A version of a store."""

    def __init__(self, store: Store, dataset: str, request: CacheRequest) -> None:
        self.key: DatasetKey = dataset_key(request.name or dataset, request.namespace)
        self.url = store.location.url
        self.fingerprint = ""
        self.skipped_special = 0
        self._store = store
        self._requested = request.version is not None
        self.version = check_version(request.version) if request.version else current_version(store)

    @property
    def flight(self) -> str:
        """The id of the flight that brings it."""
        return flight_id(self.key, self.version)

    def prove(self) -> None:
        """Reads the version's manifest with the asker's own credentials; raises NotPermitted, BadStore, NotCached."""
        _ = self.manifest

    @cached_property
    def manifest(self) -> Manifest:
        """The version's manifest; raises NotCached if the request names a version that the store never had."""
        if self._requested and self._store.find(manifest_key(self.version)) is None:
            raise NotCached(
                "cache", f"{self.key}@{self.version}", f"it is not in {self.url}", f"see dsctl ls {self.url}"
            )
        return read_manifest(self._store, self.version)

    @property
    def totals(self) -> Totals:
        """What it adds up to."""
        return self.manifest.totals

    def hit(self, cached: Sequence[CachedVersion]) -> CachedVersion | None:
        """The one of the dataset's cached versions that is this one."""
        return next((version for version in cached if version.version == self.version), None)

    def same_content(self, cached: Sequence[CachedVersion], _crew: Crew) -> CachedVersion | None:
        """For a name that came from another source: the cached version with the same content."""
        return self.hit(cached)

    def missing(self, donor: Donor) -> Iterator[Entry]:
        """The files that the donor does not have."""
        old = read_entries(donor.store, donor.manifest)
        for entry, other in beside(read_entries(self._store, self.manifest), old):
            same = other and (entry.content, entry.executable, entry.size) == (
                other.content,
                other.executable,
                other.size,
            )
            if entry.kind == FILE and not same:
                yield entry

    def fetch(self, fetch: Fetch) -> Manifest:
        """Brings it into a flight's folder."""
        fetch.packed(self._store, self.manifest)
        return self.manifest


class SourceOrigin:
    """An unpacked source."""

    def __init__(self, source: Source, request: CacheRequest) -> None:
        self.key: DatasetKey = dataset_key(request.name or name_from_source(source.location.url), request.namespace)
        self.url = source.location.url
        self._check = request.check
        self.version = request.version or ""
        self._source = source
        self._skip_special = request.skip_special

    def prove(self) -> None:
        """Lists the source, or its beginning, with the asker's own credentials; raises NotPermitted, SourceError."""
        if "_listing" not in self.__dict__:
            next(self._source.scan([]), None)

    @cached_property
    def _listing(self) -> Listing:
        return Listing(self._source, self._skip_special)

    @property
    def fingerprint(self) -> str:
        """The listing's fingerprint, empty if it cannot be trusted later."""
        return self._listing.fingerprint

    @property
    def skipped_special(self) -> int:
        """How many entries were left out because they cannot be kept; 0 if it was not listed."""
        return len(self._listing.special) if "_listing" in self.__dict__ else 0

    @property
    def flight(self) -> str:
        """The id of the flight that brings it."""
        return flight_id(self.key, self.url, self._listing.digest)

    @property
    def totals(self) -> Totals:
        """What it adds up to."""
        return self._listing.totals

    def hit(self, cached: Sequence[CachedVersion]) -> CachedVersion | None:
        """The one of the dataset's cached versions that is this one, as far as the check asked for can tell."""
        own = [version for version in cached if version.source == self.url]
        if self.version:
            return next((version for version in own if version.version == self.version), None)
        if self._check == "never":
            return own[0] if own else None
        if self._check == "content" or not self._listing.fingerprint:
            return None
        return next((version for version in own if version.fingerprint == self._listing.fingerprint), None)

    def same_content(self, cached: Sequence[CachedVersion], crew: Crew) -> CachedVersion | None:
        """For a name that came from another source: reads all and gives the cached version with the same content."""
        digest = TreeDigest()
        for entry in hash_source(self._listing, crew):
            digest.add((entry,))
        version = version_text(digest.digest())
        return next((one for one in cached if one.version == version), None)

    def missing(self, donor: Donor) -> Iterator[Entry]:
        """The files that have changed, as far as stamps tell: what only may have does not evict another dataset."""
        known = known_entries(donor.store, donor.manifest, self.url)
        for stamp, old in beside(self._listing, known):
            if stamp.kind == FILE and not (old and old.may_have_had(stamp)):
                yield entry_of(stamp, b"")

    def fetch(self, fetch: Fetch) -> Manifest:
        """Brings it into a flight's folder."""
        recall = recall_no_file if self._check == "content" else recall_stamped
        return fetch.source(self._listing, recall, self.key.name)


Origin = PackedOrigin | SourceOrigin


def resolve(node: Node, request: CacheRequest) -> Origin:
    """Where the request's dataset comes from; raises SourceError, BadStore, UsageError."""
    dataset = store_dataset(node.open, request.source)
    if dataset is not None:
        return PackedOrigin(node.open.store(request.source), dataset, request)
    return SourceOrigin(node.open.source(request.source), request)


def new_space(origin: Origin, donor: Donor | None, block: int) -> Space:
    """What the origin will newly allocate beside the donor: exact for files, an upper bound for directories."""
    whole = tree_space(origin.totals, block)
    if donor is None:
        return whole
    files = rounded = 0
    for entry in origin.missing(donor):
        files += 1
        rounded += -(-entry.size // block) * block
    directories = origin.totals.directories + 1
    names = 2 * origin.totals.name_bytes
    return Space(rounded + directories * block + names, files + directories + origin.totals.symlinks)
