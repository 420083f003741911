"""A version's manifest and stamps, shard by shard: its entries never lie in memory whole."""

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import xxhash

from dsagent.core.datasets import version_text
from dsagent.core.digest import EntryOrderError, TreeDigest
from dsagent.core.entries import DIGEST_BYTES, SETTLED_NS, SYMLINK, Entry, Stamp, newest_ns
from dsagent.core.errors import BadStore
from dsagent.core.layout import manifest_key, shard_key, stamps_key
from dsagent.core.manifest import SHARD_ENTRIES, Bundle, Manifest, ShardRef, Tally, decode_manifest, encode_manifest
from dsagent.core.ports import Store
from dsagent.core.shards import decode_shard, decode_stamps, encode_shard, encode_stamps
from dsagent.core.symlinks import SymlinkCheck

_LENGTH = struct.Struct("<I")

# In place of a token that cannot be trusted; no source gives it.
UNSETTLED = b"?"

RESTORE = "restore it from a copy, or pack the source into a new store"


class ManifestWriter:
    """Takes a version's entries in path order, writes their shards and at last the manifest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._digest = TreeDigest()
        self._tally = Tally()
        self._shards: list[ShardRef] = []
        self._pending: list[Entry] = []

    def add(self, entries: Sequence[Entry]) -> None:
        """Adds entries in path order."""
        self._digest.add(entries)
        self._tally.add(entries)
        self._pending.extend(entries)
        while len(self._pending) >= SHARD_ENTRIES:
            self._write(self._pending[:SHARD_ENTRIES])
            del self._pending[:SHARD_ENTRIES]

    def finish(self, dataset: str, bundles: Sequence[Bundle]) -> Manifest:
        """Writes what is left and the manifest; where the store has this version already, that one is kept."""
        if self._pending:
            self._write(self._pending)
        version = version_text(self._digest.digest())
        created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        manifest = Manifest(dataset, version, created, self._tally.result(), tuple(self._shards), tuple(bundles))
        if not self._store.create(manifest_key(version), encode_manifest(manifest)):
            return read_manifest(self._store, version)
        return manifest

    def _write(self, entries: Sequence[Entry]) -> None:
        data = encode_shard(entries)
        shard = ShardRef(xxhash.xxh3_128_hexdigest(data), len(entries))
        if not self._store.create(shard_key(shard.digest), data):
            self._store.refresh(shard_key(shard.digest))
        self._shards.append(shard)


def read_manifest(store: Store, version: str) -> Manifest:
    """The manifest of a version in a store; raises BadStore if it is not there or not valid."""
    key = manifest_key(version)
    subject = f"{store.location.url}/{key}"
    manifest = decode_manifest(store.read(key), subject)
    if manifest.version != version:
        raise BadStore("read", subject, f"it describes {manifest.version}", RESTORE)
    return manifest


def shard_bytes(store: Store, shard: ShardRef) -> bytes:
    """The stored bytes of a shard, compared with its digest; raises BadStore."""
    key = shard_key(shard.digest)
    data = store.read(key)
    if xxhash.xxh3_128_hexdigest(data) != shard.digest:
        raise BadStore("read", f"{store.location.url}/{key}", "its digest is not the one in its name", RESTORE)
    return data


def read_shards(store: Store, manifest: Manifest) -> Iterator[list[Entry]]:
    """The entries of a version in path order, a shard at a time, each compared with its digest; raises BadStore."""
    sizes = [bundle.plain for bundle in manifest.bundles]
    for shard in manifest.shards:
        subject = f"{store.location.url}/{shard_key(shard.digest)}"
        entries = decode_shard(shard_bytes(store, shard), subject, sizes)
        if len(entries) != shard.entries:
            raise BadStore("read", subject, f"it has {len(entries)} entries, not {shard.entries}", RESTORE)
        yield entries


def read_checked(store: Store, manifest: Manifest) -> Iterator[Entry]:
    """The entries of a version one by one, checked as a whole while they stream by.

    They must form a tree, and at the end add up to the manifest's totals and version. Raises BadStore; whoever acted
    upon entries before the end must undo it.
    """
    subject = f"{store.location.url}/{manifest_key(manifest.version)}"
    digest, tally, symlinks = TreeDigest(), Tally(), SymlinkCheck()
    for entries in read_shards(store, manifest):
        try:
            digest.add(entries)
        except EntryOrderError as error:
            raise BadStore("read", subject, str(error), RESTORE) from error
        tally.add(entries)
        for entry in entries:
            if entry.kind == SYMLINK:
                symlinks.add(entry.path, entry.content)
        yield from entries
    if leaving := symlinks.leaving():
        raise BadStore("read", subject, "symlinks leave the tree", RESTORE, leaving)
    if version_text(digest.digest()) != manifest.version or tally.result() != manifest.totals:
        raise BadStore("read", subject, "its entries do not add up to its version and totals", RESTORE)


def read_entries(store: Store, manifest: Manifest) -> Iterator[Entry]:
    """The entries of a version that was checked before, one by one; see `read_shards`."""
    for entries in read_shards(store, manifest):
        yield from entries


class StampsWriter:
    """Collects stamps in path order, to lie beside a version's entries; they stay small, so they are kept in memory.

    `scanned_ns` is the Unix time when the scan that took them began.
    """

    def __init__(self, scanned_ns: int) -> None:
        self._settled_ns = scanned_ns - SETTLED_NS
        self._blocks: list[bytes] = []

    def add(self, stamps: Sequence[Stamp]) -> None:
        """Adds stamps in path order. Those too young to be trusted lose their token: they never equal a later one."""
        if newest_ns(stamps) >= self._settled_ns:
            stamps = [s if newest_ns((s,)) < self._settled_ns else s._replace(token=UNSETTLED) for s in stamps]
        self._blocks.append(encode_stamps(stamps))

    def encode(self) -> bytes:
        """The whole as bytes: blocks, each with its length (u32 LE) before it, then xxh3-128 of all that."""
        data = b"".join(_LENGTH.pack(len(block)) + block for block in self._blocks)
        return data + xxhash.xxh3_128_digest(data)


def read_stamps(store: Store, version: str, source: str) -> Iterator[tuple[int, bytes]] | None:
    """(mtime_ns, token) of each entry of a version at the source with that URL.

    None if there are none or they are not valid: stamps save reading and are never needed.
    """
    data = store.find(stamps_key(version, source))
    if data is None or xxhash.xxh3_128_digest(data[:-DIGEST_BYTES]) != data[-DIGEST_BYTES:]:
        return None
    return (row for block in _blocks(data[:-DIGEST_BYTES]) for row in decode_stamps(block))


def _blocks(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        yield data[at : at + length]
        at += length
