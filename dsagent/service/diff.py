"""`diff`: which files differ between two of: source, store, cached dataset."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from dsagent.core.datasets import check_version, is_name
from dsagent.core.entries import DIRECTORY, Entry
from dsagent.core.join import outer
from dsagent.core.manifest import Totals
from dsagent.core.ports import Location
from dsagent.engine.crew import Crew
from dsagent.engine.fetch import hash_source
from dsagent.engine.manifests import read_checked, read_entries, read_manifest
from dsagent.engine.scan import Listing
from dsagent.service.flight import SMALL_BYTES, SMALL_FILES
from dsagent.service.node import Node, step
from dsagent.service.origins import current_version, store_dataset
from dsagent.service.results import DiffResult


class Side(NamedTuple):
    """One side of a comparison: a reference to what is cached, a source, a store, or `STORE@version`.

    `options` open a source or store; `is_cached` says which it is, None: whatever `text` looks like.
    """

    text: str
    options: tuple[tuple[str, str], ...] = ()
    is_cached: bool | None = None


def diff(node: Node, a: Side, b: Side) -> DiffResult:
    """The files and symlinks by which `b` differs from `a`; sources are read whole, the others by their manifests.

    Raises SourceError, SourceChanged, BadStore, NotCached.
    """
    step("compare")
    added: list[bytes] = []
    removed: list[bytes] = []
    changed: list[bytes] = []
    with ExitStack() as stack:
        unread: list[Totals] = []
        sides = [_entries(node, side, stack, unread) for side in (a, b)]
        subject = " and ".join(dict.fromkeys((a.text, b.text)))
        node.meter.start("compare", subject, sum(one.bytes for one in unread), sum(one.files for one in unread))
        for old, new in outer(*sides):
            if old is None or new is None:
                (added if old is None else removed).append((old or new).path)  # type: ignore[union-attr]
            elif _facts(old) != _facts(new):
                changed.append(new.path)
        node.meter.stop()
    return DiffResult(a.text, b.text, added, removed, changed)


def _facts(entry: Entry) -> tuple[str, bool, int, bytes]:
    return entry.kind, entry.executable, entry.size, entry.content


def _entries(node: Node, side: Side, stack: ExitStack, unread: list[Totals]) -> Iterator[Entry]:
    """The files and symlinks of a side; the totals of a source, which is yet to be read, are appended to `unread`."""
    return (entry for entry in _all_entries(node, side, stack, unread) if entry.kind != DIRECTORY)


def _all_entries(node: Node, side: Side, stack: ExitStack, unread: list[Totals]) -> Iterable[Entry]:
    cached = _cached(node, side)
    if cached is not None:
        return cached
    place, at, version = side.text.rpartition("@xxh3:")
    location = Location(place if at else side.text, side.options)
    if store_dataset(node.open, location) is not None:
        store = node.open.store(location)
        wanted = check_version(f"xxh3:{version}") if at else current_version(store)
        return read_checked(store, read_manifest(store, wanted))
    listing = Listing(node.open.source(Location(side.text, side.options)), skip_special=False)
    small = listing.totals.files <= SMALL_FILES and listing.totals.bytes <= SMALL_BYTES
    unread.append(listing.totals)
    crew = Crew(0 if small else node.workers, node.open, node.meter.advance, gate=node.gate)
    return hash_source(listing, stack.enter_context(crew))


def means_cached(text: str, is_here: Callable[[str], bool]) -> bool:
    """Whether what was typed means a cached dataset, rather than a source or store."""
    there = os.path.lexists(text)
    if is_name(text) and not there:
        return True
    return not ("/" in text and there) and is_here(text)


def _cached(node: Node, side: Side) -> Iterator[Entry] | None:
    """The entries of a cached dataset; None if the side is something else."""
    if not (means_cached(side.text, node.has) if side.is_cached is None else side.is_cached):
        return None
    version = node.find(side.text)
    store = node.manifest_store(version)
    return read_entries(store, read_manifest(store, version.version))
