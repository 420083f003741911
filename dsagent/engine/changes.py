"""A listing beside what an earlier version recorded: which entries are known, and which must be read."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import NamedTuple

from dsagent.core.entries import DIRECTORY, FILE, NO_BUNDLE, Entry, Stamp
from dsagent.core.join import beside
from dsagent.core.manifest import Manifest
from dsagent.core.plan import Group
from dsagent.core.ports import Store
from dsagent.engine.manifests import UNSETTLED, read_entries, read_stamps

BATCH_ENTRIES = 10_000


class Known(NamedTuple):
    """An entry of an earlier version, and mtime and token of the stamp it had at the source, if they are known."""

    path: bytes
    entry: Entry
    mtime_ns: int = 0
    token: bytes | None = None

    def had(self, stamp: Stamp) -> bool:
        """Whether this is the stamp that the entry had."""
        _, kind, executable, size, _, _, _, _ = self.entry
        return (kind, executable, size, self.mtime_ns, self.token) == stamp[1:]

    def may_have_had(self, stamp: Stamp) -> bool:
        """Whether this is the stamp, or would be if it had not been too young to be kept: most likely unchanged."""
        return self.had(stamp._replace(token=UNSETTLED)) or self.had(stamp)


def known_entries(store: Store, manifest: Manifest, source: str) -> Iterator[Known]:
    """The entries of a version in path order, with the stamps they had at the source with that URL."""
    rows = read_stamps(store, manifest.version, source) or iter(())
    unknown = repeat((0, None))
    for entry, (mtime_ns, token) in zip(read_entries(store, manifest), chain(rows, unknown), strict=False):
        yield Known(entry.path, entry, mtime_ns, token)


class Batch:
    """A run of entries in path order.

    `entries` has None for each that must be read; those are in `unread`, and `known` has the earlier version's entry
    at each one's path if it has the same type, size and executable bit. `resumed`: an earlier attempt read them.
    """

    def __init__(self) -> None:
        self.group: Group | None = None
        self.stamps: list[Stamp] = []
        self.entries: list[Entry | None] = []
        self.unread: list[Stamp] = []
        self.known: list[Entry | None] = []
        self.resumed = False

    @property
    def known_contents(self) -> tuple[bytes, ...]:
        """The content that each unread entry may still have, or b""."""
        return tuple(entry.content if entry else b"" for entry in self.known)


Recall = Callable[[Stamp, Known | None], Entry | None]
"""What an entry is, if that can be told from its stamp and what was known of its path; None: it must be read."""


def recall_packed(stamp: Stamp, old: Known | None) -> Entry | None:
    """For packing: an entry that lies in a bundle already, because its stamp is the recorded one."""
    if old is None:
        return None
    if stamp.kind == FILE:
        return old.entry if old.had(stamp) else None
    return old.entry if old.entry == entry_of(stamp, stamp.token) else None


def recall_stamped(stamp: Stamp, old: Known | None) -> Entry | None:
    """For caching: a directory or symlink, or a file whose stamp is the recorded one."""
    if stamp.kind != FILE:
        return entry_of(stamp, stamp.token)
    return unbundled(old.entry) if old and old.had(stamp) else None


def recall_no_file(stamp: Stamp, _old: Known | None) -> Entry | None:
    """For caching when every file is to be read, whatever its stamp says."""
    return None if stamp.kind == FILE else entry_of(stamp, stamp.token)


def batches(
    listing: Iterable[Stamp], known: Iterable[Known], recall: Recall, group_of: Callable[[Stamp], Group]
) -> Iterator[Batch]:
    """Cuts a listing into batches whose unread entries are of one group."""
    batch = Batch()
    # A million entries come through here: what is used for each is kept in local variables.
    group, stamps, entries = batch.group, batch.stamps, batch.entries
    for stamp, old in beside(listing, known):
        entry = recall(stamp, old)
        own = group if entry else group_of(stamp)
        if len(stamps) >= BATCH_ENTRIES or (group is not None and own != group):
            yield batch
            batch = Batch()
            group, stamps, entries = batch.group, batch.stamps, batch.entries
        stamps.append(stamp)
        entries.append(entry)
        if entry is None:
            group = batch.group = own
            batch.unread.append(stamp)
            batch.known.append(old.entry if old and _alike(old.entry, stamp) else None)
    if stamps:
        yield batch


def _alike(entry: Entry, stamp: Stamp) -> bool:
    return (entry.kind, entry.executable, entry.size) == (stamp.kind, stamp.executable, stamp.size)


def entry_of(stamp: Stamp, content: bytes) -> Entry:
    """The entry that a stamp with that content describes; it lies in no bundle."""
    if stamp.kind == DIRECTORY:
        content = b""
    return Entry(*stamp[:5], content)


def unbundled(entry: Entry) -> Entry:
    """The same entry as one of an unpacked version."""
    return entry if entry.bundle == NO_BUNDLE else entry._replace(bundle=NO_BUNDLE, offset=0)
