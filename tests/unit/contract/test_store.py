"""What every Store must do."""

import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsagent.core.errors import BadStore
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.ports import Location, Store
from dsagent.wiring import Wiring
from tests import servers
from tests.fakes.store import MemoryStore
from tests.unit.contract.places import BucketPlace

KEY = "bundles/0123.tar.zst"


@pytest.fixture(
    params=[
        "fake",
        "directory",
        "directory beneath a folder",
        pytest.param("versitygw", marks=pytest.mark.needs("go")),
        "moto",
        "moto without conditions",
        "memory://",
        pytest.param("webhdfs://", marks=pytest.mark.needs("java")),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "fake":
        return MemoryStore()
    return Wiring().store(_location(request.param, tmp_path))


def _location(kind: str, tmp_path: Path) -> Location:
    match kind:
        case "directory" | "directory beneath a folder":
            options = (("beneath", str(tmp_path)),) if "beneath" in kind else ()
            return Location(str(tmp_path / "new" / "store"), options)
        case "versitygw":
            return BucketPlace(servers.versitygw()).location
        case "moto":
            return BucketPlace(servers.moto()).location
        case "moto without conditions":
            place = BucketPlace(servers.moto()).location
            return Location(place.url, (*place.options, ("conditional_put", "disabled")))
        case "memory://":
            return Location(f"memory://{uuid.uuid4().hex}")
    return Location(f"webhdfs://{servers.hdfs()}/{uuid.uuid4().hex}")


def test_what_is_not_there_is_not_found(store: Store) -> None:
    assert store.find(KEY) is None
    with pytest.raises(BadStore):
        store.read(KEY, 0, 1)
    with pytest.raises(BadStore):
        store.read(KEY)
    assert list(store.entries("bundles/")) == []


def test_a_created_object_is_found_whole_and_in_part(store: Store) -> None:
    assert store.create(KEY, b"0123456789")
    assert store.find(KEY) == b"0123456789"
    assert store.read(KEY) == b"0123456789"
    assert store.read(KEY, 3) == b"3456789"
    assert store.read(KEY, 3, 4) == b"3456"
    assert store.read(KEY, 0, 1) == b"0"


def test_a_range_ends_where_the_object_does(store: Store) -> None:
    store.create(KEY, b"0123456789")
    assert store.read(KEY, 8, 100) == b"89"
    assert store.read(KEY, 10, 5) == b""
    assert store.read(KEY, 100, 5) == b""


def test_an_empty_object_is_one(store: Store) -> None:
    assert store.create("stamps/empty", b"")
    assert store.find("stamps/empty") == b""


def test_a_taken_key_is_left_alone(store: Store) -> None:
    assert store.create(KEY, b"first")
    assert not store.create(KEY, b"second")
    assert store.find(KEY) == b"first"


@pytest.mark.parametrize("size", [0, 1000, 2 * FRAME_BYTES + 1])
def test_a_spool_becomes_an_object(store: Store, size: int) -> None:
    data = random.Random(size).randbytes(size)
    with store.spool() as spool:
        spool.write(data)
        assert store.create(KEY, spool)
    assert store.find(KEY) == data
    with store.spool() as spool:
        spool.write(b"other" + data)
        assert not store.create(KEY, spool)
    assert store.find(KEY) == data


def test_the_pointer_is_replaced_if_it_is_what_was_expected(store: Store) -> None:
    assert not store.replace("current.json", b"one", b"none")
    assert store.find("current.json") is None
    assert store.replace("current.json", b"one", None)
    assert not store.replace("current.json", b"two", None)
    assert store.replace("current.json", b"two", b"one")
    assert not store.replace("current.json", b"three", b"one")
    assert store.find("current.json") == b"two"


def test_entries_are_those_of_the_folder_with_size_and_age(store: Store) -> None:
    store.create("bundles/1", b"x")
    store.create("bundles/2", b"xx")
    store.create("bundles.json", b"xxx")
    store.create("manifests/1", b"xxxx")
    found = sorted(store.entries("bundles/"), key=lambda entry: entry.key)
    assert [(entry.key, entry.size) for entry in found] == [("bundles/1", 1), ("bundles/2", 2)]
    assert all(entry.modified > 1e9 for entry in found)


def test_a_refreshed_object_is_as_it_was_and_no_older(store: Store) -> None:
    store.create(KEY, b"content")
    (before,) = store.entries("bundles/")
    store.refresh(KEY)
    (after,) = store.entries("bundles/")
    assert after.modified >= before.modified
    assert store.find(KEY) == b"content"


def test_what_is_not_there_is_not_refreshed(store: Store) -> None:
    with pytest.raises(BadStore):
        store.refresh(KEY)
    assert store.find(KEY) is None


def test_a_deleted_object_is_gone_and_its_key_free(store: Store) -> None:
    store.create(KEY, b"one")
    store.delete(KEY)
    assert store.find(KEY) is None
    store.delete(KEY)
    assert store.create(KEY, b"two")
    assert store.find(KEY) == b"two"


def test_of_many_that_create_one_key_each_object_is_whole(store: Store) -> None:
    contents = [b"%d" % number * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as executor:
        created = list(executor.map(lambda data: store.create(KEY, data), contents))
    assert any(created)
    found = store.find(KEY)
    winners = [data for data, made in zip(contents, created, strict=True) if made]
    assert found in winners
    if not _without_conditions(store):
        assert len(winners) == 1


def test_of_many_that_replace_the_pointer_one_wins(store: Store) -> None:
    store.create("current.json", b"old")
    contents = [b"new %d" % number for number in range(8)]
    with ThreadPoolExecutor(8) as executor:
        replaced = list(executor.map(lambda data: store.replace("current.json", data, b"old"), contents))
    winners = [data for data, made in zip(contents, replaced, strict=True) if made]
    assert store.find("current.json") in winners
    if not _without_conditions(store):
        assert len(winners) == 1


def _without_conditions(store: Store) -> bool:
    return ("conditional_put", "disabled") in store.location.options
