"""Shards of entries as stored bytes: columns in JSON, compressed with zstd. docs/format.md has it in prose."""

import base64
from collections.abc import Iterable, Sequence
from operator import lt
from typing import Any

import orjson
import zstandard

from dsagent.core.entries import (
    DIGEST_BYTES,
    DIRECTORY,
    FILE,
    NO_BUNDLE,
    SYMLINK,
    Entry,
    Stamp,
    find_bad_path,
    path_order,
)
from dsagent.core.errors import BadStore
from dsagent.core.symlinks import target_leaves

# One entry takes at most some 20 KB as JSON (a path of several PATH_MAX); a shard's bound stops a bomb.
PLAIN_LIMIT = 1 << 30
_COLUMNS = frozenset({"format", "path", "path_b64", "kind", "size", "mtime", "digest", "link", "bundle", "offset"})
_KINDS = {"f": (FILE, False), "x": (FILE, True), "d": (DIRECTORY, False), "l": (SYMLINK, False)}


def encode_shard(entries: Sequence[Entry]) -> bytes:
    """Entries in path order as stored bytes; the same entries always give the same bytes."""
    files = [entry for entry in entries if entry.kind == FILE]
    paths, paths_b64 = _texts(entry.path for entry in entries)
    return _compress(
        {
            "format": 1,
            "path": paths,
            "path_b64": paths_b64,
            "kind": "".join("x" if entry.executable else entry.kind for entry in entries),
            "size": [entry.size for entry in files],
            "mtime": [entry.mtime_ns for entry in files],
            "digest": b"".join(entry.content for entry in files).hex(),
            "link": [base64.b64encode(entry.content).decode() for entry in entries if entry.kind == SYMLINK],
            "bundle": [entry.bundle for entry in files],
            "offset": [entry.offset for entry in files],
        }
    )


def decode_shard(data: bytes, subject: str, bundle_sizes: Sequence[int]) -> list[Entry]:
    """The entries of a shard, each checked by itself and for order within the shard.

    `bundle_sizes` are the plain lengths of the manifest's bundles, in which every file's data must lie (none for an
    unpacked version). Raises BadStore, naming `subject`.
    """
    try:
        columns = _decompress(data)
        _require(columns.keys() == _COLUMNS and columns["format"] == 1, "unknown format or fields")
        paths = _paths(columns["path"], columns["path_b64"])
        return list(_rows(paths, columns, bundle_sizes))
    except (ValueError, TypeError, AttributeError, LookupError, zstandard.ZstdError, MemoryError) as error:
        raise BadStore(
            "read", subject, f"it is not a valid shard of entries ({error})", "restore it from a copy"
        ) from error


def _rows(paths: list[bytes], columns: dict[str, Any], bundle_sizes: Sequence[int]) -> Iterable[Entry]:
    kinds: str = columns["kind"]
    count = len(kinds) - kinds.count("d") - kinds.count("l")
    sizes, mtimes, bundles, offsets = (
        _integers(columns[name], count) for name in ("size", "mtime", "bundle", "offset")
    )
    digests = bytes.fromhex(columns["digest"])
    links = [base64.b64decode(text, validate=True) for text in columns["link"]]
    _require(len(paths) == len(kinds) and set(kinds) <= _KINDS.keys(), "columns differ in length")
    _require(len(digests) == count * DIGEST_BYTES and len(links) == kinds.count("l"), "columns differ in length")
    _require(not count or min(sizes) >= 0, "a size is negative")
    _check_places(sizes, bundles, offsets, bundle_sizes)
    contents = (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
    rows = zip(sizes, mtimes, contents, bundles, offsets, strict=True)
    targets = iter(links)
    entries = []
    for path, code in zip(paths, kinds, strict=True):
        if code in "fx":
            size, mtime, content, bundle, offset = next(rows)
            entries.append(Entry(path, FILE, code == "x", size, mtime, content, bundle, offset))
        elif code == "d":
            entries.append(Entry(path, DIRECTORY, False, 0, 0, b""))
        else:
            target = next(targets)
            _require(b"\0" not in target and target != b"", "a symlink has no valid target")
            _require(not target_leaves(path, target), "a symlink leaves the tree")
            entries.append(Entry(path, SYMLINK, False, 0, 0, target))
    return entries


def _check_places(sizes: list[int], bundles: list[int], offsets: list[int], bundle_sizes: Sequence[int]) -> None:
    if not bundle_sizes:
        _require(set(bundles) <= {NO_BUNDLE} and set(offsets) <= {0}, "an entry lies in a bundle that is not there")
        return
    for size, bundle, offset in zip(sizes, bundles, offsets, strict=True):
        if not (0 <= bundle < len(bundle_sizes) and offset >= 0 and offset + size <= bundle_sizes[bundle]):
            raise ValueError("an entry lies outside of its bundle")


def _paths(texts: list[str], others: dict[str, str]) -> list[bytes]:
    paths = list(map(str.encode, texts))
    for index, text in others.items():
        _require(paths[int(index)] == b"", "a path is given twice")
        paths[int(index)] = base64.b64decode(text, validate=True)
    reason = find_bad_path(paths)
    _require(reason is None, reason or "")
    order = [path_order(path) for path in paths]
    _require(all(map(lt, order, order[1:])), "paths are out of order or listed twice")
    return paths


def _texts(values: Iterable[bytes]) -> tuple[list[str], dict[str, str]]:
    texts, others = [], {}
    for index, value in enumerate(values):
        try:
            texts.append(value.decode())
        except UnicodeDecodeError:
            texts.append("")
            others[str(index)] = base64.b64encode(value).decode()
    return texts, others


def encode_stamps(stamps: Sequence[Stamp]) -> bytes:
    """The part of stamps that lies beside a shard: mtime and token of each entry, in the shard's order."""
    return _compress(
        {
            "format": 1,
            "mtime": [stamp.mtime_ns for stamp in stamps],
            "token": [stamp.token.decode("latin-1") for stamp in stamps],
        }
    )


def decode_stamps(data: bytes) -> list[tuple[int, bytes]]:
    """(mtime_ns, token) of each entry; raises ValueError for bytes that `encode_stamps` would not write."""
    try:
        columns = _decompress(data)
        _require(columns.keys() == {"format", "mtime", "token"} and columns["format"] == 1, "unknown format or fields")
        tokens = [text.encode("latin-1") for text in columns["token"]]
        return list(zip(_integers(columns["mtime"], len(tokens)), tokens, strict=True))
    except (TypeError, AttributeError, KeyError, zstandard.ZstdError, MemoryError) as error:
        raise ValueError(f"not valid stamps ({error})") from error


def _compress(columns: dict[str, Any]) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(orjson.dumps(columns))


def _decompress(data: bytes) -> dict[str, Any]:
    _require(0 < zstandard.frame_content_size(data) <= PLAIN_LIMIT, "an impossible size")
    columns = orjson.loads(zstandard.ZstdDecompressor().decompress(data, max_output_size=PLAIN_LIMIT))
    _require(isinstance(columns, dict), "it is not an object")
    return columns  # type: ignore[no-any-return]


def _integers(values: Any, count: int) -> list[int]:
    _require(
        isinstance(values, list) and len(values) == count and set(map(type, values)) <= {int},
        "a column is not of integers",
    )
    return values  # type: ignore[no-any-return]


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ValueError(reason)
