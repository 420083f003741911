import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsagent.core.entries import Entry, rounded
from dsagent.core.errors import BadStore
from dsagent.core.manifest import (
    FRAME_LIMIT,
    Bundle,
    Frame,
    Manifest,
    ShardRef,
    Tally,
    Totals,
    decode_manifest,
    decode_pointer,
    decode_store,
    encode_manifest,
    encode_pointer,
    encode_store,
)
from dsagent.core.sealed import seal
from tests.unit.trees import entries

MANIFEST = Manifest(
    dataset="imagenet",
    version="xxh3:" + "0" * 32,
    created="2026-01-01T00:00:00Z",
    totals=Totals(files=2, bytes=10),
    shards=(ShardRef("1" * 32, 2),),
    bundles=(Bundle("2" * 32, (Frame(0, 7, 0, 10, bytes(16)), Frame(7, 3, 10, 5, bytes(16)))),),
)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "here") == MANIFEST
    assert (MANIFEST.bundles[0].stored, MANIFEST.bundles[0].plain) == (10, 15)


@given(st.integers(0, 10**6), st.integers(0, 7))
def test_one_flipped_bit_anywhere_is_noticed(place: int, bit: int) -> None:
    for data in (encode_manifest(MANIFEST), encode_store("imagenet"), encode_pointer(MANIFEST.version)):
        broken = bytearray(data)
        broken[place % len(data)] ^= 1 << bit
        for decode in (decode_manifest, decode_store, decode_pointer):
            with pytest.raises(BadStore):
                decode(bytes(broken), "here")


@given(st.integers(0, 10**6))
def test_a_document_cut_short_is_noticed(length: int) -> None:
    data = encode_manifest(MANIFEST)
    with pytest.raises(BadStore):
        decode_manifest(data[: length % len(data)], "here")


def document(**fields: object) -> bytes:
    plain = orjson.loads(encode_manifest(MANIFEST))
    del plain["xxh3"]
    return seal(plain | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"dsagent-manifest": 2},
        {"unknown": 1},
        {"dataset": 1},
        {"totals": [0]},
        {"totals": [-1] * 7},
        {"totals": [1.0] * 7},
        {"shards": [["1" * 32]]},
        {"shards": [["../../../etc", 1]]},
        {"shards": [["1" * 32, 10**9]]},
        {"bundles": [{"digest": "2" * 32, "frames": []}]},
        {"bundles": [{"digest": "x", "frames": [[1, 1, "0" * 32]]}]},
        {"bundles": [{"digest": "2" * 32, "frames": [[1, FRAME_LIMIT + 1, "0" * 32]]}]},
        {"bundles": [{"digest": "2" * 32, "frames": [[0, 1, "0" * 32]]}]},
        {"bundles": [{"digest": "2" * 32, "frames": [[1, 1, "0" * 32]], "more": 1}]},
        {"bundles": None},
    ],
)
def test_what_no_packer_writes_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadStore):
        decode_manifest(document(**fields), "here")


@given(entries())
def test_totals_add_up_however_the_stream_is_cut(tree: list[Entry]) -> None:
    whole, parts = Tally(), Tally()
    whole.add(tree)
    for entry in tree:
        parts.add([entry])
    totals = whole.result()
    assert parts.result() == totals
    sizes = [entry.size for entry in tree if entry.kind == "f"]
    assert (totals.files, totals.bytes, totals.rounded_bytes) == (len(sizes), sum(sizes), sum(map(rounded, sizes)))
    assert totals.inodes == len(tree) + 1
    assert totals.largest_directory <= totals.name_bytes
