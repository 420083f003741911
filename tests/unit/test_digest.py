import struct
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dsagent.core.digest import EntryOrderError, TreeDigest
from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry
from tests.unit.trees import entries


def naive(tree: list[Entry], directory: bytes = b"") -> bytes:
    """The digest as the design words it, by recursion over a tree in memory."""
    children = sorted((e for e in tree if e.path.rpartition(b"/")[0] == directory and e.path), key=lambda e: e.path)
    data = b""
    for entry in children:
        name = entry.path.rpartition(b"/")[2]
        data += entry.kind.encode() + bytes([entry.executable]) + struct.pack("<QI", entry.size, len(name)) + name
        if entry.kind == FILE:
            data += entry.content
        elif entry.kind == SYMLINK:
            data += struct.pack("<I", len(entry.content)) + entry.content
        else:
            data += naive(tree, entry.path)
    return xxhash.xxh3_128_digest(data)


def digest(tree: list[Entry]) -> bytes:
    stream = TreeDigest()
    stream.add(tree)
    return stream.digest()


@given(entries())
def test_the_stream_gives_what_recursion_gives(tree: list[Entry]) -> None:
    assert digest(tree) == naive(tree)


@given(entries(), st.integers(0, 30))
def test_it_does_not_matter_how_the_stream_is_cut(tree: list[Entry], cut: int) -> None:
    stream = TreeDigest()
    stream.add(tree[:cut])
    stream.add(tree[cut:])
    assert stream.digest() == digest(tree)


@given(entries(), st.data())
def test_every_field_of_a_file_counts_but_time_and_place(tree: list[Entry], data: st.DataObject) -> None:
    files = [index for index, entry in enumerate(tree) if entry.kind == FILE]
    if not files:
        return
    index = data.draw(st.sampled_from(files))
    entry = tree[index]

    def changed(**fields: Any) -> bytes:
        return digest([*tree[:index], entry._replace(**fields), *tree[index + 1 :]])

    assert changed(mtime_ns=entry.mtime_ns + 1, bundle=7, offset=9) == digest(tree)
    assert changed(size=entry.size + 1) != digest(tree)
    assert changed(executable=not entry.executable) != digest(tree)
    assert changed(content=bytes(16 * [entry.content[0] ^ 1])) != digest(tree)


@pytest.mark.parametrize(
    "paths",
    [
        (b"b", b"a"),
        (b"a", b"a"),
        (b"a/b",),
        (b"f/below",),
        (b"l/below",),
        (b"d", b"d/x", b"d"),
        (b"d", b"d/x", b"e", b"d/y"),
    ],
)
def test_what_is_no_tree_is_refused(paths: tuple[bytes, ...]) -> None:
    kinds = {b"d": DIRECTORY, b"l": SYMLINK}
    tree = [Entry(path, kinds.get(path, FILE), False, 0, 0, b"" if path == b"d" else bytes(16)) for path in paths]
    if paths[0] in (b"f/below", b"l/below"):
        tree.insert(0, Entry(paths[0][:1], kinds.get(paths[0][:1], FILE), False, 0, 0, bytes(16)))
    with pytest.raises(EntryOrderError):
        digest(tree)


def test_a_name_and_its_length_cannot_be_confused_with_the_content() -> None:
    one = [Entry(b"ab", SYMLINK, False, 0, 0, b"c")]
    other = [Entry(b"a", SYMLINK, False, 0, 0, b"bc")]
    assert digest(one) != digest(other)
