from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dsagent.core import shards
from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry, Stamp
from dsagent.core.errors import BadStore
from tests.unit.trees import entries

BUNDLE = 1 << 30


@given(entries(bundle_bytes=BUNDLE))
def test_a_shard_comes_back_as_it_was(tree: list[Entry]) -> None:
    data = shards.encode_shard(tree)
    assert shards.decode_shard(data, "here", [BUNDLE]) == tree
    assert data == shards.encode_shard(tree)


@given(st.lists(st.builds(Stamp, st.just(b"a"), st.just(FILE), st.booleans(), st.just(1), st.integers(), st.binary())))
def test_stamps_come_back_as_they_were(stamps: list[Stamp]) -> None:
    stamps = [stamp for stamp in stamps if -(1 << 63) <= stamp.mtime_ns < 1 << 63]
    assert shards.decode_stamps(shards.encode_stamps(stamps)) == [(stamp.mtime_ns, stamp.token) for stamp in stamps]


def file(path: bytes, **fields: Any) -> Entry:
    return Entry(path, FILE, False, 1, 0, bytes(16), 0, 0)._replace(**fields)


@pytest.mark.parametrize(
    "tree",
    [
        [file(b"/absolute")],
        [file(b"a/../b")],
        [file(b"..")],
        [file(b".")],
        [file(b"a//b")],
        [file(b"a/")],
        [file(b"")],
        [file(b"nul\0")],
        [file(b"x" * 256)],
        [file(b"b"), file(b"a")],
        [file(b"a"), file(b"a")],
        [file(b"a", size=-1)],
        [file(b"a", size=BUNDLE + 1)],
        [file(b"a", offset=BUNDLE)],
        [file(b"a", offset=-1)],
        [file(b"a", bundle=1)],
        [file(b"a", bundle=-1)],
        [Entry(b"l", SYMLINK, False, 0, 0, b"/etc/passwd")],
        [Entry(b"l", SYMLINK, False, 0, 0, b"..")],
        [Entry(b"d", DIRECTORY, False, 0, 0, b""), Entry(b"d/l", SYMLINK, False, 0, 0, b"../../x")],
        [Entry(b"l", SYMLINK, False, 0, 0, b"")],
    ],
)
def test_what_no_packer_writes_is_refused(tree: list[Entry]) -> None:
    with pytest.raises(BadStore):
        shards.decode_shard(shards.encode_shard(tree), "here", [BUNDLE])


def columns() -> dict[str, object]:
    data = shards.encode_shard([file(b"a"), file(b"b")])
    decoded = orjson.loads(zstandard.decompress(data))
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("format", 2),
        ("kind", "f"),
        ("kind", "fz"),
        ("size", [1]),
        ("size", [1, "1"]),
        ("size", [1, 1.0]),
        ("size", [True, True]),
        ("mtime", [0, None]),
        ("digest", "00" * 31),
        ("digest", "zz" * 32),
        ("path", ["a"]),
        ("path", ["a", 1]),
        ("path", None),
        ("path_b64", {"7": "YQ=="}),
        ("path_b64", {"0": "!"}),
        ("link", ["YQ=="]),
        ("more", []),
    ],
)
def test_columns_that_are_not_as_they_should_be_are_refused(column: str, value: object) -> None:
    data = zstandard.compress(orjson.dumps(columns() | {column: value}))
    with pytest.raises(BadStore):
        shards.decode_shard(data, "here", [BUNDLE])


def test_a_bomb_is_not_inflated() -> None:
    bomb = zstandard.compress(bytes(shards.PLAIN_LIMIT + 1))
    assert len(bomb) < 1 << 20
    with pytest.raises(BadStore):
        shards.decode_shard(bomb, "here", [])
