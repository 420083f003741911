"""`pack`: puts what a source holds into a store, as a new version of its dataset."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from dsagent.core.datasets import dataset_key, name_from_source
from dsagent.core.errors import BadStore, UsageError
from dsagent.core.layout import BUNDLES, POINTER_KEY, SHARDS, STORE_KEY, bundle_key, manifest_key, shard_key, stamps_key
from dsagent.core.manifest import Manifest, Totals, encode_manifest, encode_pointer, encode_store
from dsagent.core.ports import CachedVersion, Location, Store
from dsagent.engine.changes import Known, known_entries
from dsagent.engine.crew import Crew
from dsagent.engine.manifests import read_entries, read_manifest
from dsagent.engine.pack import PackOptions, Previous
from dsagent.engine.pack import pack as pack_listing
from dsagent.engine.scan import Listing
from dsagent.service.leases import hold
from dsagent.service.node import Meter, Node, Opens, step
from dsagent.service.origins import current_version, store_dataset
from dsagent.service.results import PackResult

# Objects that no manifest names are deleted when they are older than this: a pack may be about to name them.
PRUNE_GRACE_SECONDS = 7 * 24 * 3600
# A bundle of which less than this is still referred to is packed anew.
LIVE_SHARE = 0.5
# Frames of 8 MiB that wait for their turn to be written.
FRAMES_AHEAD_PER_WORKER = 3


class PackRequest(NamedTuple):
    """What is to be packed, and where."""

    source: Location
    store: Location
    name: str | None = None
    options: PackOptions = PackOptions()
    skip_special: bool = False


def pack(open_: Opens, meter: Meter, workers: int, request: PackRequest) -> PackResult:
    """Packs a source and makes the result the store's current version; only what changed is read and written.

    Raises SourceError, SourceChanged, BadStore, UsageError, NotPermitted, InsufficientStorage.
    """
    started = time.perf_counter()
    step("resolve")
    store = open_.store(request.store)
    source = open_.source(request.source)
    progress = _Progress(meter)
    with Crew(workers, open_, progress.advance) as crew:
        crew.start()
        dataset = _store_for(open_, store, request.name or name_from_source(request.source.url), request.name)
        step("pack")
        # While the first files are packed the others are listed: most CPUs would have nothing to do till then.
        listing = Listing(source, request.skip_special, partial(progress.start, dataset))
        ahead = FRAMES_AHEAD_PER_WORKER * workers
        previous = _previous(store, source.location.url)
        packed = pack_listing(listing, store, dataset, previous, request.options, crew, ahead)
        meter.stop()
    step("publish")
    _put_stamps(store, packed.manifest.version, source.location.url, packed.stamps)
    _point(store, packed.manifest)
    totals = packed.manifest.totals
    return PackResult(
        dataset=dataset,
        version=packed.manifest.version,
        files=totals.files,
        bytes=totals.bytes,
        bundles=len(packed.manifest.bundles),
        new_bundles=packed.new_bundles,
        stored_bytes=sum(bundle.stored for bundle in packed.manifest.bundles),
        skipped_special=len(listing.special),
        seconds=time.perf_counter() - started,
    )


class _Progress:
    """Tells the meter what was done before the totals were known as soon as they are."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._started = False
        self._bytes = self._files = 0

    def start(self, dataset: str, totals: Totals) -> None:
        """The totals are known."""
        self._meter.start("pack", dataset, totals.bytes, totals.files)
        with self._lock:
            self._started = True
        self._meter.advance(self._bytes, self._files)

    def advance(self, size: int, files: int) -> None:
        """See Meter.advance."""
        with self._lock:
            if not self._started:
                self._bytes += size
                self._files += files
                return
        self._meter.advance(size, files)


def pack_cached(node: Node, version: CachedVersion, location: Location) -> None:
    """Puts a version that is on this node into a store, unless it is the current one there already.

    The files are read from the local disk; the store gets the stamps that they have at the version's source.
    """
    step("pack")
    store = node.open.store(location)
    dataset = _store_for(node.open, store, version.dataset.name, version.dataset.name)
    if store.find(POINTER_KEY) is not None and current_version(store) == version.version:
        return
    data = node.open.source(Location(str(node.data(version))))
    lease = hold(node, version, "pack")
    try:
        with Crew(node.workers, node.open, node.meter.advance) as crew:
            listing = Listing(data, skip_special=False)
            node.meter.start("pack", dataset, listing.totals.bytes, listing.totals.files)
            ahead = FRAMES_AHEAD_PER_WORKER * node.workers
            previous = _previous(store, data.location.url)
            packed = pack_listing(listing, store, dataset, previous, PackOptions(), crew, ahead)
            node.meter.stop()
    finally:
        lease.release()
    if stamps := node.manifest_store(version).find(stamps_key(version.version, version.source)):
        _put_stamps(store, packed.manifest.version, version.source, stamps)
    _point(store, packed.manifest)


def _store_for(open_: Opens, store: Store, name: str, asked: str | None) -> str:
    """The dataset that the store is for; makes the store, for `name`, if there is none.

    Raises UsageError if it is for another than the one `asked` for.
    """
    existing = store_dataset(open_, store.location)
    if existing is None:
        store.create(STORE_KEY, encode_store(dataset_key(name).name))  # another packer may be first: its name counts
        existing = store_dataset(open_, store.location)
    if existing is None or (asked or existing) != existing:
        raise UsageError(
            "pack into",
            store.location.url,
            f"it holds the versions of {existing!r}, not of {asked!r}",
            "use a store of its own for each dataset",
        )
    return existing


def _previous(store: Store, source: str) -> Previous:
    """The current version, as what the new one may refer to; nothing if there is none."""
    if store.find(POINTER_KEY) is None:
        return Previous()
    manifest = read_manifest(store, current_version(store))
    _keep(store, manifest)
    return Previous(manifest.bundles, _living(store, manifest, source))


def _keep(store: Store, manifest: Manifest) -> None:
    """Makes what a manifest names young, or a prune could delete it before the next manifest names it."""
    ages = {found.key: time.time() - found.modified for part in (BUNDLES, SHARDS) for found in store.entries(part)}
    bundles = [bundle_key(bundle.digest) for bundle in manifest.bundles]
    for key in (*bundles, *(shard_key(shard.digest) for shard in manifest.shards)):
        if key not in ages:
            raise BadStore(
                "read",
                f"{store.location.url}/{key}",
                f"{manifest.version} needs it and it is gone",
                "dsctl store check",
            )
        if ages[key] > PRUNE_GRACE_SECONDS / 2:
            store.refresh(key)


def _living(store: Store, manifest: Manifest, source: str) -> Iterator[Known]:
    """The version's entries, without those in bundles of which too little is still in use: they are packed anew."""
    sparse: set[int] = set()
    if len(manifest.bundles) > 1:
        live = [0] * len(manifest.bundles)
        for entry in read_entries(store, manifest):
            if entry.bundle >= 0:
                live[entry.bundle] += entry.size + 512
        sparse = {i for i, bundle in enumerate(manifest.bundles) if live[i] < LIVE_SHARE * bundle.plain}
    return (known for known in known_entries(store, manifest, source) if known.entry.bundle not in sparse)


def _put_stamps(store: Store, version: str, source: str, stamps: bytes) -> None:
    key = stamps_key(version, source)
    store.replace(key, stamps, store.find(key))  # if another packer is faster, its stamps are as good


def _point(store: Store, manifest: Manifest) -> None:
    """Makes a version the current one. The last packer to get here wins; every version is complete."""
    # It may be an older pack's, with bundles that a forget and a prune are about to delete.
    _keep(store, manifest)
    while not store.replace(POINTER_KEY, encode_pointer(manifest.version), store.find(POINTER_KEY)):
        pass
    # A manifest that was there before may have been forgotten just before the pointer came to name it.
    store.create(manifest_key(manifest.version), encode_manifest(manifest))
