"""A source that is listed while it is packed."""

from collections.abc import Iterator

import pytest

from dsagent.core.entries import Stamp
from dsagent.core.errors import SourceError
from dsagent.core.layout import BUNDLES
from dsagent.core.ports import Location
from dsagent.engine.crew import Crew
from dsagent.engine.pack import PackOptions, Previous, pack
from dsagent.engine.scan import BLOCK_ENTRIES, Listing
from tests.fakes.source import MemorySource
from tests.fakes.store import MemoryStore

FILES = 2 * BLOCK_ENTRIES + 1


class CountingSource(MemorySource):
    """Counts what a scan has given so far."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        for number in range(FILES):
            self.write(b"f%06d" % number, b"")

    def scan(self, special: list[bytes] | None = None) -> Iterator[Stamp]:
        for stamp in super().scan(special):
            self.given += 1
            yield stamp


class Opener:
    """Opens the one source, and no store: a crew without workers asks for no other."""

    descriptor = -1

    def __init__(self, source: MemorySource) -> None:
        self._source = source

    def source(self, _location: Location) -> MemorySource:
        return self._source

    def store(self, location: Location) -> MemoryStore:
        raise AssertionError(location)


@pytest.fixture(scope="module")
def source() -> CountingSource:
    return CountingSource()


def test_stamps_are_given_before_all_are_known(source: CountingSource) -> None:
    source.given = 0
    told: list[object] = []
    listing = Listing(source, False, told.append)
    stamps = iter(listing)
    first = next(stamps)
    assert (source.given, told) == (BLOCK_ENTRIES, [])
    listing.finish()
    assert (source.given, told) == (FILES, [listing.totals])
    whole = Listing(source, False)
    assert [first, *stamps] == list(listing) == list(whole)
    assert (listing.totals, listing.digest, listing.fingerprint) == (whole.totals, whole.digest, whole.fingerprint)
    assert len(told) == 1


def test_an_entry_that_cannot_be_kept_leaves_no_bundle(source: CountingSource) -> None:
    source.add_other(b"zzz", "")
    store = MemoryStore()
    with Crew(0, Opener(source), lambda _size, _files: None) as crew:
        listing = Listing(source, False, lambda _totals: None)
        with pytest.raises(SourceError) as caught:
            pack(listing, store, "imgs", Previous(), PackOptions(files_per_bundle=100), crew, 4)
    assert caught.value.paths == (b"zzz",)
    assert [key for key in store.objects if key.startswith(BUNDLES)] == []
