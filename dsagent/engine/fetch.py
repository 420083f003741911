"""Fetching a version into a flight's folder: from a store's bundles, or from an unpacked source."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dsagent.core.entries import FILE, SYMLINK, Entry, Stamp
from dsagent.core.errors import SourceChanged
from dsagent.core.join import beside
from dsagent.core.layout import manifest_key, shard_key, stamps_key
from dsagent.core.manifest import Manifest, encode_manifest
from dsagent.core.plan import CopyPlan
from dsagent.core.ports import Location, Store
from dsagent.engine.changes import Batch, Recall, batches, entry_of, known_entries, recall_no_file, unbundled
from dsagent.engine.copy import JOB_BYTES, JOB_FILES, Copy, copy_jobs, left_out
from dsagent.engine.crew import Crew, Finished, Job
from dsagent.engine.link import JOB_FILES as LINK_FILES
from dsagent.engine.link import Link, Linked
from dsagent.engine.manifests import ManifestWriter, StampsWriter, read_checked, read_entries, shard_bytes
from dsagent.engine.reading import Unreadable, split_digests, unreadable_error
from dsagent.engine.scan import Listing
from dsagent.engine.staging import Staging
from dsagent.engine.tree import Tree
from dsagent.engine.unpack import Unpack, UnpackPlan

# Jobs given out before the first is finished: one large file must not let the other workers run dry.
AHEAD = 64


class Donor(NamedTuple):
    """The published version `id` of the same dataset; unchanged files are hard-linked from its `data`."""

    id: str
    data: str
    store: Store
    manifest: Manifest


class Fetched:
    """What a flight brought. `written` files take `written_bytes` on the disk, in whole blocks of `block`; of those,
    `fetched_bytes` were read by this attempt and not by one before it.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self.fetched_bytes = self.written_files = self.written_bytes = self.reused_files = 0
        self.directories: list[bytes] = []

    def wrote(self, size: int) -> None:
        """Counts a file that was not linked."""
        self.written_files += 1
        self.written_bytes += -(-size // self.block) * self.block


class Fetch:
    """One flight's fetching, whichever way: directories and symlinks are made here, files by the crew."""

    def __init__(self, staging: Staging, local: Store, donor: Donor | None, crew: Crew, block: int) -> None:
        self._staging = staging
        self._local = local
        self._donor = donor
        self._crew = crew
        self._into = str(staging.data)
        self._journal = str(staging.journal)
        self.result = Fetched(block)

    def packed(self, store: Store, manifest: Manifest) -> None:
        """Fetches a version of a store. Raises BadStore, DigestMismatch, InsufficientStorage, NotPermitted."""
        # What is kept is what was checked: the store may have changed since, and since an attempt that was killed.
        self._local.delete(manifest_key(manifest.version))
        self._local.create(manifest_key(manifest.version), encode_manifest(manifest))
        for shard in manifest.shards:
            self._local.create(shard_key(shard.digest), shard_bytes(store, shard))
        plan = self._unpack_plan(store.location, manifest)
        with Tree(self._into) as tree:
            for files, message in self._crew.in_order(self._packed_work(tree, plan, manifest), AHEAD):
                if isinstance(files, _Links):
                    missing = [files.entries[index] for index in message.value]
                    self.result.reused_files += len(files.entries) - len(missing)
                    self._tell_linked(files.entries, missing)
                    self._unpack_missing(store.location, manifest, missing)

    def source(self, listing: Listing, recall: Recall, dataset: str) -> Manifest:
        """Fetches what a listing holds, and writes manifest and stamps of it.

        `recall` says which files count as the donor's without being read. Raises SourceError naming every file that
        cannot be read, SourceChanged, InsufficientStorage, NotPermitted.
        """
        location = listing.source.location
        writer, stamps = ManifestWriter(self._local), StampsWriter(listing.scanned_ns)
        unreadable: list[Unreadable] = []
        with Tree(self._into) as tree:
            for tag, message in self._crew.in_order(self._source_work(tree, listing, recall), AHEAD):
                if isinstance(tag, _Links):
                    self._tell_linked(tag.entries, [tag.entries[index] for index in message.value])
                    self._copy_missing(location, tag, message.value)
                    continue
                unreadable += [one for one in message.value if isinstance(one, Unreadable)]
                if not unreadable:
                    writer.add(self._entries(location, tag, message.value))
                    stamps.add(tag.stamps)
        if unreadable:
            raise unreadable_error(location.url, unreadable)
        manifest = writer.finish(dataset, ())
        self._local.replace(stamps_key(manifest.version, location.url), stamps.encode(), None)
        return manifest

    def _packed_work(
        self, tree: Tree, plan: UnpackPlan, manifest: Manifest
    ) -> Iterator[tuple["_Links | None", Job | Finished]]:
        links = _Links()
        for entry, old in self._beside_donor(read_checked(self._local, manifest)):
            if entry.kind != FILE:
                self._make(tree, entry)
            elif self._donor and old and _same_file(entry, old):
                links.add(entry, old)
                if len(links.entries) >= LINK_FILES:
                    yield links, links.job(self._donor, self._into)
                    links = _Links()
            else:
                self.result.wrote(entry.size)
                for job in plan.add(entry):
                    yield None, self._unless_done(job)
        yield from ((None, self._unless_done(job)) for job in plan.rest())
        if self._donor and links.entries:
            yield links, links.job(self._donor, self._into)

    def _source_work(
        self, tree: Tree, listing: Listing, recall: Recall
    ) -> Iterator[tuple["Batch | _Links", Job | Finished]]:
        donor, url = self._donor, listing.source.location.url
        known = known_entries(donor.store, donor.manifest, url) if donor else iter(())
        for batch in batches(listing, known, recall, CopyPlan(JOB_FILES, JOB_BYTES)):
            links = _Links()
            for stamp, entry in zip(batch.stamps, batch.entries, strict=True):
                if entry is not None and entry.kind == FILE:
                    links.add(entry, entry, stamp)
                elif entry is not None:
                    self._make(tree, entry)
            if donor and links.entries:
                yield links, links.job(donor, self._into)
            contents = batch.known_contents
            job = Copy(listing.source.location, tuple(batch.unread), contents, self._into, self._journal)
            work = self._unless_done(job) if batch.unread else Finished([])
            batch.resumed = isinstance(work, Finished)
            yield batch, work

    def _make(self, tree: Tree, entry: Entry) -> None:
        try:
            if entry.kind == SYMLINK:
                tree.make_symlink(entry.path, entry.content)
            else:
                tree.make_directory(entry.path)
                self.result.directories.append(entry.path)
        except OSError as error:
            raise tree.explain(entry.path, error) from error

    def _unless_done(self, job: Unpack | Copy) -> Job | Finished:
        digests = self._staging.done.get(job.key)
        if digests is None:
            if isinstance(job, Unpack):
                self.result.fetched_bytes += job.size
            return job
        self._crew.progress(job.size, len(job.files))
        return Finished(split_digests(digests))

    def _entries(self, location: Location, batch: Batch, contents: Sequence[bytes]) -> list[Entry]:
        """The entries of a batch that was read; files that were left out are linked."""
        same = _Links()
        read: list[Entry] = []
        for stamp, known, content in zip(batch.unread, batch.known, contents, strict=True):
            if known and left_out(stamp.size, content, known.content):
                read.append(unbundled(known))
                same.add(known, known, stamp)
            else:
                read.append(entry_of(stamp, content))
                self.result.wrote(stamp.size)
                self.result.fetched_bytes += 0 if batch.resumed else stamp.size
        if self._donor and same.entries:
            for tag, message in self._crew.in_order([(same, same.job(self._donor, self._into))], 1):
                self._copy_missing(location, tag, message.value)
        rest = iter(read)
        return [entry if entry is not None else next(rest) for entry in batch.entries]

    def _copy_missing(self, location: Location, links: "_Links", missing: Sequence[int]) -> None:
        """Reads files that could not be linked. Their content is what it was: the stamp says so, or it was read."""
        self.result.reused_files += len(links.entries) - len(missing)
        stamps = [links.stamps[index] for index in missing]
        for stamp in stamps:
            self.result.wrote(stamp.size)
            self.result.fetched_bytes += stamp.size
        jobs = ((job, job) for job in copy_jobs(location, stamps, [b""] * len(stamps), self._into))
        expected = iter([links.entries[index] for index in missing])
        for _, message in self._crew.in_order(jobs, AHEAD):
            for content in message.value:
                if isinstance(content, Unreadable):
                    raise unreadable_error(location.url, [content])
                entry = next(expected)
                if content != entry.content:
                    raise SourceChanged(
                        "read",
                        location.url,
                        "a file has other content than its stamp says",
                        "run it again with --check content",
                        [entry.path],
                    )

    def _tell_linked(self, entries: Sequence[Entry], missing: Sequence[Entry]) -> None:
        """Linked files are progress too: the totals that it is measured against are the whole version's."""
        size = sum(entry.size for entry in entries) - sum(entry.size for entry in missing)
        self._crew.progress(size, len(entries) - len(missing))

    def _unpack_missing(self, location: Location, manifest: Manifest, missing: Sequence[Entry]) -> None:
        """Fetches files that could not be linked."""
        plan = self._unpack_plan(location, manifest)
        jobs: list[Unpack] = []
        for entry in missing:
            self.result.wrote(entry.size)
            self.result.fetched_bytes += entry.size
            jobs += plan.add(entry)
        jobs += plan.rest()
        for _ in self._crew.in_order(((None, job) for job in jobs), AHEAD):
            pass

    def _unpack_plan(self, location: Location, manifest: Manifest) -> UnpackPlan:
        return UnpackPlan(location, manifest.bundles, self._into, self._journal)

    def _beside_donor(self, entries: Iterator[Entry]) -> Iterator[tuple[Entry, Entry | None]]:
        if self._donor is None:
            return ((entry, None) for entry in entries)
        return beside(entries, read_entries(self._donor.store, self._donor.manifest))


class _Links:
    """Files to be hard-linked: as entries of the new version, as recorded at the donor, and their stamps at the
    source if that is what they are fetched from.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.stamps: list[Stamp] = []
        self._files: list[Linked] = []

    def add(self, entry: Entry, old: Entry, stamp: Stamp | None = None) -> None:
        """Adds a file."""
        self.entries.append(entry)
        self._files.append((old.path, old.executable, old.size, old.mtime_ns))
        if stamp is not None:
            self.stamps.append(stamp)

    def job(self, donor: Donor, into: str) -> Link:
        """The job that links them."""
        return Link(donor.data, into, tuple(self._files))


def _same_file(entry: Entry, old: Entry) -> bool:
    return (entry.content, entry.executable, entry.size, FILE) == (old.content, old.executable, old.size, old.kind)


def hash_source(listing: Listing, crew: Crew) -> Iterator[Entry]:
    """The entries of a source in path order, read and hashed but not written; raises like Fetch.source."""
    url = listing.source.location.url
    unreadable: list[Unreadable] = []
    plan = CopyPlan(JOB_FILES, JOB_BYTES)
    cut = batches(listing, iter(()), recall_no_file, plan)
    work = ((batch, _hash_job(listing.source.location, batch)) for batch in cut)
    for batch, message in crew.in_order(work, AHEAD):
        unreadable += [one for one in message.value if isinstance(one, Unreadable)]
        if unreadable:
            continue
        read = (entry_of(stamp, content) for stamp, content in zip(batch.unread, message.value, strict=True))
        yield from (entry if entry is not None else next(read) for entry in batch.entries)
    if unreadable:
        raise unreadable_error(url, unreadable)


def _hash_job(source: Location, batch: Batch) -> Job | Finished:
    return Copy(source, tuple(batch.unread), batch.known_contents) if batch.unread else Finished([])
