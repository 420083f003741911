"""Packing a source into a store: only entries that changed are read, and only new content is written."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import xxhash

from dsagent.core import tarstream
from dsagent.core.entries import FILE, NO_BUNDLE, Entry
from dsagent.core.layout import bundle_key
from dsagent.core.manifest import Bundle, Frame, Manifest
from dsagent.core.plan import BundlePlan
from dsagent.core.ports import Location, Store
from dsagent.engine.changes import Batch, Known, batches, entry_of, recall_packed
from dsagent.engine.crew import Crew, Finished, Job
from dsagent.engine.frames import PackedFrame, PackFrames, Placed, compress
from dsagent.engine.manifests import ManifestWriter, StampsWriter
from dsagent.engine.reading import Unreadable, unreadable_error
from dsagent.engine.scan import Listing


class PackOptions(NamedTuple):
    """How to pack: entries and plain bytes a bundle, zstd level."""

    files_per_bundle: int = 50_000
    bundle_bytes: int = 1 << 30
    level: int = 1


class Packed(NamedTuple):
    """A version in the store, how many bundles were written for it, and the stamps its entries had."""

    manifest: Manifest
    new_bundles: int
    stamps: bytes


class Previous(NamedTuple):
    """An earlier version of the same store, whose bundles are referred to where content is unchanged."""

    bundles: Sequence[Bundle] = ()
    known: Iterable[Known] = ()


def pack(
    listing: Listing, store: Store, dataset: str, previous: Previous, options: PackOptions, crew: Crew, ahead: int
) -> Packed:
    """Writes bundles, shards and the manifest of what `listing` holds; the caller adds stamps and moves the pointer.

    Raises SourceError naming every file that cannot be read, SourceChanged, and what the store raises.
    """
    source = listing.source.location
    writer, stamps = ManifestWriter(store), StampsWriter(listing.scanned_ns)
    unreadable: list[Unreadable] = []
    plan = BundlePlan(options.files_per_bundle, options.bundle_bytes)
    work = _jobs(source, batches(listing, previous.known, recall_packed, plan), options.level)
    with _Bundles(store, previous.bundles, options.level, listing.finish) as bundles:
        for batch, message in crew.in_order(work, ahead):
            if isinstance(message, PackedFrame):
                bundles.write(batch, message)
                continue
            unreadable += [one for one in message.value if isinstance(one, Unreadable)]
            if not unreadable:
                writer.add(bundles.entries(batch, message.value))
                stamps.add(batch.stamps)
        if unreadable:
            raise unreadable_error(source.url, unreadable)
        manifest = writer.finish(dataset, bundles.finish())
    return Packed(manifest, bundles.written, stamps.encode())


def _jobs(source: Location, cut: Iterable[Batch], level: int) -> Iterator[tuple[Batch, Job | Finished]]:
    for batch in cut:
        if batch.unread:
            yield batch, PackFrames(source, tuple(map(tuple, batch.unread)), batch.known_contents, level)
        else:
            yield batch, Finished([])


class _Bundles:
    """The bundles of the version being packed: new ones are written one after the other, old ones referred to.

    None comes into the store before `list_all` has returned: a source with entries that cannot be kept leaves nothing.
    """

    def __init__(self, store: Store, old: Sequence[Bundle], level: int, list_all: Callable[[], None]) -> None:
        self._store = store
        self._old = old
        self._level = level
        self._list_all = list_all
        self._referred: dict[int, int] = {}
        self._bundles: list[Bundle | None] = []
        self._new: _NewBundle | None = None
        self._group = -1
        self.written = 0

    def __enter__(self) -> "_Bundles":
        return self

    def __exit__(self, *_: object) -> None:
        if self._new:
            self._new.spool.close()

    def write(self, batch: Batch, frame: PackedFrame) -> None:
        """Adds a frame that the batch's job made."""
        self._current(batch).write(frame)

    def entries(self, batch: Batch, placed: Iterable[Placed]) -> list[Entry]:
        """All entries of a batch, once its job is done, with where their data lie."""
        unread = zip(batch.unread, batch.known, placed, strict=True)
        entries = []
        new: _NewBundle | None = None
        for entry in batch.entries:
            if entry is not None:
                entries.append(self._refer(entry))
                continue
            stamp, known, (content, offset) = next(unread)
            if known is not None and offset is None:
                entries.append(self._refer(known))
            elif stamp.kind != FILE or offset is None:
                entries.append(entry_of(stamp, content))
            else:
                new = new or self._current(batch)
                entries.append(Entry(*stamp[:5], content, new.index, new.job_start + offset))
        if self._new:
            self._new.job_start = self._new.length
        return entries

    def finish(self) -> list[Bundle]:
        """Closes the last bundle and returns all that the version refers to."""
        self._close()
        return [bundle for bundle in self._bundles if bundle is not None]

    def _refer(self, entry: Entry) -> Entry:
        if entry.bundle == NO_BUNDLE:
            return entry
        if entry.bundle not in self._referred:
            self._referred[entry.bundle] = len(self._bundles)
            self._bundles.append(self._old[entry.bundle])
        return entry._replace(bundle=self._referred[entry.bundle])

    def _current(self, batch: Batch) -> "_NewBundle":
        group = batch.group.bundle if batch.group else self._group
        if self._new is None or group != self._group:
            self._close()
            self._group = group
            self._new = _NewBundle(self._store, len(self._bundles))
            self._bundles.append(None)  # its place; what it is called is known when it is whole
        return self._new

    def _close(self) -> None:
        if self._new is None:
            return
        self._list_all()
        self._new.write(compress(tarstream.END, self._level))
        bundle, created = self._new.finish(self._store)
        self._bundles[self._new.index] = bundle
        self.written += created
        self._new = None


class _NewBundle:
    """A bundle that is being written to a spool. `job_start` is where the current job's plain bytes begin."""

    def __init__(self, store: Store, index: int) -> None:
        self.index = index
        self.spool = store.spool()
        self.length = self.job_start = 0
        self._digest = xxhash.xxh3_128()
        self._frames: list[Frame] = []
        self._stored = 0

    def write(self, frame: PackedFrame) -> None:
        """Adds a frame."""
        view = memoryview(frame.stored)
        while view:
            view = view[self.spool.write(view) :]
        self._digest.update(frame.stored)
        self._frames.append(Frame(self._stored, len(frame.stored), self.length, frame.plain, frame.digest))
        self._stored += len(frame.stored)
        self.length += frame.plain

    def finish(self, store: Store) -> tuple[Bundle, bool]:
        """Puts the bundle into the store; False if the store has it already."""
        bundle = Bundle(self._digest.hexdigest(), tuple(self._frames))
        key = bundle_key(bundle.digest)
        with self.spool:
            self.spool.flush()
            self.spool.seek(0)
            created = store.create(key, self.spool)
        if not created:
            store.refresh(key)
        return bundle, created
