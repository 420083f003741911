"""What every Source must do."""

import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsagent.core.entries import DIRECTORY, FILE, Stamp, path_order
from dsagent.core.errors import SourceChanged, SourceError
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.ports import Location, Source
from dsagent.wiring import Wiring
from tests import servers
from tests.unit.contract.places import BucketPlace, DirectoryPlace, FilesystemPlace, MemoryPlace, Place

# Names around the byte of the slash, where the order of paths and of their bytes differ.
AWKWARD = [
    b"a/b/c", b"a/b.txt", b"a/b-1/c", b"a-b", b"a.txt", b"a b", b"a/b c", b"aa", b"a0/x", b"a+%20#?&=y",
    "ü/ü".encode(), b"z",
]  # fmt: skip


@pytest.fixture(
    params=[
        "fake",
        "directory",
        "directory beneath a folder",
        pytest.param("versitygw", marks=pytest.mark.needs("go")),
        "moto",
        "memory://",
        pytest.param("webhdfs://", marks=pytest.mark.needs("java")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "fake":
            return MemoryPlace()
        case "directory" | "directory beneath a folder":
            (tmp_path / "inner").mkdir()
            options = (("beneath", str(tmp_path)),) if "beneath" in request.param else ()
            return DirectoryPlace(tmp_path / "inner", options)
        case "versitygw":
            return BucketPlace(servers.versitygw())
        case "moto":
            return BucketPlace(servers.moto())
        case "memory://":
            return FilesystemPlace("memory://", notices_rewrites=False)
        case _:
            return FilesystemPlace(f"webhdfs://{servers.hdfs()}", notices_rewrites=True)


def read(source: Source, stamp: Stamp) -> bytes:
    return b"".join(source.chunks(stamp))


def stamp_of(source: Source, path: bytes) -> Stamp:
    return next(stamp for stamp in source.scan() if stamp.path == path)


def test_entries_come_whole_in_path_order_each_after_the_folders_above_it(place: Place) -> None:
    for path in AWKWARD:
        place.write(path, path)
    source = place.source()
    stamps = list(source.scan())
    folders = {path.rpartition(b"/")[0] for path in AWKWARD if b"/" in path} | {b"a"}
    assert [stamp.path for stamp in stamps] == sorted({*AWKWARD, *folders}, key=path_order)
    assert {stamp.path for stamp in stamps if stamp.kind == DIRECTORY} == folders
    files = [stamp for stamp in stamps if stamp.kind == FILE]
    assert all(stamp.size == len(stamp.path) for stamp in files)
    assert [list(source.chunks(stamp)) for stamp in files] == [[stamp.path] for stamp in files]


def test_a_folder_without_files_is_an_entry(place: Place) -> None:
    place.write(b"file", b"x")
    place.make_directory(b"empty")
    place.make_directory(b"full")
    place.write(b"full/file", b"x")
    kinds = [(stamp.path, stamp.kind) for stamp in place.source().scan()]
    assert kinds == [(b"empty", DIRECTORY), (b"file", FILE), (b"full", DIRECTORY), (b"full/file", FILE)]


def test_directories_say_nothing_but_their_path(place: Place) -> None:
    place.write(b"folder/file", b"x")
    assert stamp_of(place.source(), b"folder") == Stamp(b"folder", DIRECTORY, False, 0, 0, b"")


def test_an_empty_file_has_no_pieces(place: Place) -> None:
    place.write(b"empty", b"")
    source = place.source()
    (stamp,) = source.scan()
    assert (stamp.kind, stamp.size) == (FILE, 0)
    assert list(source.chunks(stamp)) == []


@pytest.mark.parametrize("size", [FRAME_BYTES, FRAME_BYTES + 1, 5 * FRAME_BYTES])
def test_a_large_file_comes_in_pieces_of_8_mib(place: Place, size: int) -> None:
    data = random.Random(size).randbytes(size)
    place.write(b"large", data)
    source = place.source()
    (stamp,) = source.scan()
    pieces = list(source.chunks(stamp))
    assert [len(piece) for piece in pieces[:-1]] == [FRAME_BYTES] * (len(pieces) - 1)
    assert len(pieces) == -(-size // FRAME_BYTES)
    assert b"".join(pieces) == data


def test_many_threads_may_read(place: Place) -> None:
    for number in range(12):
        place.write(b"%d" % number, b"%d" % number * 1000)
    source = place.source()
    stamps = list(source.scan())
    with ThreadPoolExecutor(16) as executor:
        contents = list(executor.map(lambda stamp: read(source, stamp), stamps))
    assert contents == [stamp.path * 1000 for stamp in stamps]


def test_an_unchanged_tree_has_the_same_stamps(place: Place) -> None:
    place.write(b"folder/file", b"x")
    place.write(b"other", b"y")
    if place.notices_rewrites:
        assert list(place.source().scan()) == list(place.source().scan())


def test_a_file_written_again_has_another_stamp(place: Place) -> None:
    place.write(b"file", b"before")
    before = stamp_of(place.source(), b"file")
    place.write(b"file", b"behind")
    if place.notices_rewrites:
        assert stamp_of(place.source(), b"file") != before


@pytest.mark.parametrize("size", [6, FRAME_BYTES + 6])
def test_a_file_written_after_the_scan_has_changed(place: Place, size: int) -> None:
    place.write(b"file", b"x" * size)
    source = place.source()
    before = stamp_of(source, b"file")
    place.write(b"file", b"y" * (size if place.notices_rewrites else size + 1))
    with pytest.raises(SourceChanged) as raised:
        read(source, before)
    assert raised.value.paths == (b"file",)


def test_a_file_that_shrinks_or_grows_has_changed(place: Place) -> None:
    place.write(b"file", b"longer")
    source = place.source()
    before = stamp_of(source, b"file")
    for data in (b"short", b"much longer", b""):
        place.write(b"file", data)
        with pytest.raises(SourceChanged):
            read(source, before)


def test_a_file_removed_after_the_scan_has_changed(place: Place) -> None:
    place.write(b"file", b"x")
    place.write(b"other", b"x")
    source = place.source()
    before = stamp_of(source, b"file")
    place.remove(b"file")
    with pytest.raises(SourceChanged):
        read(source, before)


@pytest.mark.parametrize(
    "kind",
    [
        "directory",
        pytest.param("versitygw", marks=pytest.mark.needs("go")),
        "moto",
        "memory://",
        pytest.param("webhdfs://", marks=pytest.mark.needs("java")),
    ],
)
def test_a_place_that_is_not_there_is_an_error(kind: str, tmp_path: Path) -> None:
    match kind:
        case "directory":
            location = Location(str(tmp_path / "absent"))
        case "versitygw":
            location = BucketPlace(servers.versitygw()).location
        case "moto":
            location = BucketPlace(servers.moto()).location
        case "memory://":
            location = Location(f"memory://{uuid.uuid4().hex}")
        case _:
            location = Location(f"webhdfs://{servers.hdfs()}/{uuid.uuid4().hex}")
    with pytest.raises(SourceError):
        list(Wiring().source(location).scan())
