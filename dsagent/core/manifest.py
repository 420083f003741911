"""A version's description, and the documents of a store. docs/format.md is the prose of this module."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from dsagent.core.datasets import is_name, is_version
from dsagent.core.entries import BLOCK, DIRECTORY, FILE, Entry, Stamp
from dsagent.core.errors import BadStore
from dsagent.core.sealed import seal, unseal

MANIFEST = "dsagent-manifest"
STORE = "dsagent-store"
POINTER = "dsagent-current"

FRAME_BYTES = 8 << 20
# A frame holds up to FRAME_BYTES of entries, or a piece of a large file with its header; twice that is the bound.
FRAME_LIMIT = 2 * FRAME_BYTES
SHARD_ENTRIES = 10_000  # small, so that workers have something to do soon
SHARD_LIMIT = 100_000


class Frame(NamedTuple):
    """One zstd frame of a bundle: where it lies among the stored bytes, where in the plain stream, and its hash."""

    offset: int
    stored: int
    start: int
    plain: int
    digest: bytes


class Bundle(NamedTuple):
    """A bundle: named by the xxh3-128 of its stored bytes; `frames` in order, the last one is tar's end mark."""

    digest: str
    frames: tuple[Frame, ...]

    @property
    def stored(self) -> int:
        """Stored bytes."""
        return self.frames[-1].offset + self.frames[-1].stored

    @property
    def plain(self) -> int:
        """Bytes of the plain tar stream."""
        return self.frames[-1].start + self.frames[-1].plain


class ShardRef(NamedTuple):
    """A shard of entries: named by the xxh3-128 of its stored bytes."""

    digest: str
    entries: int


class Totals(NamedTuple):
    """What a version adds up to. `rounded_bytes`: sizes rounded up to 4 KiB; `name_bytes`: bytes of all directory
    entries as ext4 stores them; `largest_directory`: the same of the directory that has most.
    """

    files: int = 0
    directories: int = 0
    symlinks: int = 0
    bytes: int = 0
    rounded_bytes: int = 0
    name_bytes: int = 0
    largest_directory: int = 0

    @property
    def inodes(self) -> int:
        """Inodes that the tree takes, its root included."""
        return self.files + self.directories + self.symlinks + 1


class Tally:
    """Adds entries up to Totals, in path order."""

    def __init__(self) -> None:
        self._totals = Totals()
        self._largest = 0
        self._open: list[tuple[bytes, int]] = [(b"", 0)]

    def add(self, entries: Iterable[Entry | Stamp]) -> None:
        """Adds entries, or their stamps, in path order."""
        # A million of them come through here: what changes with each is kept in local variables.
        files = size = blocks = directories = symlinks = names = 0
        directory, taken = self._open.pop()
        for path, kind, _executable, length, *_ in entries:
            parent, _, name = path.rpartition(b"/")
            while directory != parent:
                self._largest = max(self._largest, taken)
                directory, taken = self._open.pop()
            record = (11 + len(name)) & ~3
            taken += record
            names += record
            if kind == FILE:
                files += 1
                size += length
                blocks += -(-length // BLOCK)
            elif kind == DIRECTORY:
                directories += 1
                self._open.append((directory, taken))
                directory, taken = path, 0
            else:
                symlinks += 1
        self._open.append((directory, taken))
        added = (files, directories, symlinks, size, blocks * BLOCK, names, 0)
        self._totals = Totals(*map(operator.add, self._totals, added))

    def result(self) -> Totals:
        """The totals of all entries added."""
        return self._totals._replace(largest_directory=max(self._largest, *(taken for _, taken in self._open)))


class Manifest(NamedTuple):
    """The head of a version's manifest; its entries are in the shards."""

    dataset: str
    version: str
    created: str
    totals: Totals
    shards: tuple[ShardRef, ...]
    bundles: tuple[Bundle, ...]


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as a sealed document."""
    return seal(
        {
            MANIFEST: 1,
            "dataset": manifest.dataset,
            "version": manifest.version,
            "created": manifest.created,
            "totals": list(manifest.totals),
            "shards": [[shard.digest, shard.entries] for shard in manifest.shards],
            "bundles": [
                {"digest": b.digest, "frames": [[f.stored, f.plain, f.digest.hex()] for f in b.frames]}
                for b in manifest.bundles
            ],
        }
    )


_FIELDS = frozenset({"dataset", "version", "created", "totals", "shards", "bundles"})


def decode_manifest(data: bytes, subject: str) -> Manifest:
    """The manifest in `data`; raises BadStore, naming `subject`, for what `encode_manifest` would not write."""
    document = unseal(data, subject, MANIFEST, _FIELDS)
    try:
        counts = [_count(value) for value in document["totals"]]
        _require(len(counts) == len(Totals._fields))
        return Manifest(
            dataset=_text(document["dataset"], is_name),
            version=_text(document["version"], is_version),
            created=_text(document["created"]),
            totals=Totals(*counts),
            shards=tuple(_shard(row) for row in document["shards"]),
            bundles=tuple(_bundle(row) for row in document["bundles"]),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadStore("read", subject, f"it is not a valid manifest ({error})", "restore it from a copy") from error


def encode_store(dataset: str) -> bytes:
    """The document at a store's top."""
    return seal({STORE: 1, "dataset": dataset})


def decode_store(data: bytes, subject: str) -> str:
    """The name of the dataset whose versions the store holds; raises BadStore."""
    name = unseal(data, subject, STORE, frozenset({"dataset"}))["dataset"]
    if not isinstance(name, str) or not is_name(name):
        raise BadStore("read", subject, "its dataset has no valid name", "restore it from a copy")
    return name


def encode_pointer(version: str) -> bytes:
    """The pointer to the current version."""
    return seal({POINTER: 1, "version": version})


def decode_pointer(data: bytes, subject: str) -> str:
    """The version that the pointer names; raises BadStore."""
    version = unseal(data, subject, POINTER, frozenset({"version"}))["version"]
    if not isinstance(version, str) or not is_version(version):
        raise BadStore("read", subject, "it names no valid version", "pack the source again")
    return version


def _shard(row: Sequence[Any]) -> ShardRef:
    digest, entries = row
    _require(_count(entries) <= SHARD_LIMIT)
    return ShardRef(_hex(digest), entries)


def _bundle(row: dict[str, Any]) -> Bundle:
    _require(row.keys() == {"digest", "frames"} and len(row["frames"]) > 0)
    frames, offset, start = [], 0, 0
    for stored, plain, digest in row["frames"]:
        _require(0 < _count(plain) <= FRAME_LIMIT and 0 < _count(stored) <= FRAME_LIMIT)
        frames.append(Frame(offset, stored, start, plain, bytes.fromhex(_hex(digest))))
        offset += stored
        start += plain
    return Bundle(_hex(row["digest"]), tuple(frames))


def _text(value: Any, valid: Callable[[str], bool] = bool) -> str:
    _require(isinstance(value, str) and valid(value))
    return str(value)


def _count(value: Any) -> int:
    _require(type(value) is int and value >= 0)
    return int(value)


def _hex(value: Any) -> str:
    _require(isinstance(value, str) and len(value) == 32 and value == bytes.fromhex(value).hex())
    return str(value)


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("a field has an impossible value")
