"""Stores that are broken or lie: each with its exit code, and nothing published."""

import base64
import dataclasses
import os
import random
import shutil
import signal
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest
import xxhash
import zstandard

from dsagent.core import tarstream
from dsagent.core.digest import TreeDigest
from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry
from dsagent.core.manifest import (
    Bundle,
    Frame,
    Manifest,
    ShardRef,
    Tally,
    Totals,
    encode_manifest,
    encode_pointer,
    encode_store,
)
from dsagent.core.sealed import seal
from dsagent.core.shards import encode_shard
from tests.support import trees
from tests.support.command import Dsctl

BAD_STORE, MISMATCH = 10, 5
CONTENT = b"content"


def _hash(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def _entry(path: bytes, kind: str = FILE, content: bytes = CONTENT) -> Entry:
    if kind != FILE:
        return Entry(path, kind, False, 0, 0, content if kind == SYMLINK else b"")
    return Entry(path, FILE, False, len(content), 0, xxhash.xxh3_128_digest(content), 0, 512)


def _version(entries: Sequence[Entry]) -> str:
    """The version that such entries would have, if they have one at all."""
    digest = TreeDigest()
    try:
        digest.add(entries)
        return f"xxh3:{digest.digest().hex()}"
    except (ValueError, struct.error):
        return f"xxh3:{0:032x}"


class Forged:
    """A store that holds whatever entries it was given, in one bundle with one plain file for all of them."""

    def __init__(self, folder: Path, entries: Sequence[Entry] = (), shard: bytes | None = None) -> None:
        self.folder = folder
        plain = tarstream.header(_entry(b"plain")) + CONTENT + bytes(tarstream.padding(len(CONTENT))) + tarstream.END
        stored = zstandard.ZstdCompressor().compress(plain)
        frame = Frame(0, len(stored), 0, len(plain), xxhash.xxh3_128_digest(stored))
        self.bundle = Bundle(_hash(stored), (frame,))
        self.shard = encode_shard(entries) if shard is None else shard
        files = [entry for entry in entries if entry.kind == FILE]
        self.manifest = Manifest(
            "forged",
            _version(entries),
            "2026-01-01T00:00:00Z",
            Totals(files=len(files), bytes=sum(entry.size for entry in files)),
            (ShardRef(_hash(self.shard), len(entries)),),
            (self.bundle,),
        )
        self._put("dsagent-store.json", encode_store("forged"))
        self._put(f"bundles/{self.bundle.digest}.tar.zst", stored)
        self._put(f"shards/{_hash(self.shard)}.zst", self.shard)
        self.point()

    def point(self) -> None:
        """Writes the manifest and the pointer to it."""
        self.put_manifest(encode_manifest(self.manifest))
        self._put("current.json", encode_pointer(self.manifest.version))

    def put_manifest(self, data: bytes) -> None:
        self._put(f"manifests/{self.manifest.version[5:]}.json", data)

    def _put(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def dsctl(scratch: Path) -> Dsctl:
    return Dsctl(scratch / "root")


def _refused(dsctl: Dsctl, store: Path, code: int) -> None:
    """Refused with `code`; nothing is published, and nothing of it lies outside of the root's own folders."""
    outside = sorted(dsctl.root.parent.iterdir())
    dsctl.fails(code, "cache", store, "--name", "forged")
    assert not list(dsctl.root.glob("versions/*/*/*"))
    assert set(outside) | {dsctl.root} == {*dsctl.root.parent.iterdir(), dsctl.root}


LYING_ENTRIES = {
    "absolute path": [_entry(b"/etc/passwd")],
    "parent": [_entry(b"../escaped")],
    "parent within": [_entry(b"a", DIRECTORY), _entry(b"a/../../escaped")],
    "dot": [_entry(b"./a")],
    "empty part": [_entry(b"a", DIRECTORY), _entry(b"a//b")],
    "empty path": [_entry(b"")],
    "nul": [_entry(b"a\0b")],
    "long name": [_entry(b"n" * 256)],
    "symlink as directory": [_entry(b"a", SYMLINK, b"b"), _entry(b"a/file"), _entry(b"b", DIRECTORY)],
    "file as directory": [_entry(b"a"), _entry(b"a/file")],
    "no directory": [_entry(b"a/file")],
    "twice": [_entry(b"a"), _entry(b"a")],
    "file and directory": [_entry(b"a"), _entry(b"a", DIRECTORY)],
    "out of order": [_entry(b"b"), _entry(b"a")],
    "symlink that leaves": [_entry(b"a", SYMLINK, b"../out")],
    "symlink to the root": [_entry(b"a", SYMLINK, b"/etc")],
    "symlink without target": [_entry(b"a", SYMLINK, b"")],
    "beyond the bundle": [_entry(b"a")._replace(offset=1 << 40)],
    "before the bundle": [_entry(b"a")._replace(offset=-1)],
    "in no bundle": [_entry(b"a")._replace(bundle=7)],
    "of negative size": [_entry(b"a")._replace(size=-1)],
}


@pytest.mark.parametrize("entries", LYING_ENTRIES.values(), ids=LYING_ENTRIES.keys())
def test_entries_that_cannot_be(scratch: Path, dsctl: Dsctl, entries: list[Entry]) -> None:
    _refused(dsctl, Forged(scratch / "store", entries).folder, BAD_STORE)


def test_a_path_that_is_given_twice_in_two_ways(scratch: Path, dsctl: Dsctl) -> None:
    columns = orjson.loads(zstandard.ZstdDecompressor().decompress(encode_shard([_entry(b"a"), _entry(b"b")])))
    columns["path_b64"] = {"1": base64.b64encode(b"a").decode()}
    shard = zstandard.ZstdCompressor().compress(orjson.dumps(columns))
    _refused(dsctl, Forged(scratch / "store", [_entry(b"a"), _entry(b"b")], shard).folder, BAD_STORE)


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_a_file_of_another_size(scratch: Path, dsctl: Dsctl, size: int) -> None:
    entry = _entry(b"a")._replace(size=size)
    store = Forged(scratch / "store", [entry])
    store.manifest = store.manifest._replace(totals=_totals([entry]))
    store.point()
    _refused(dsctl, store.folder, MISMATCH)


def test_a_file_of_another_content(scratch: Path, dsctl: Dsctl) -> None:
    entry = _entry(b"a")._replace(content=bytes(16))
    store = Forged(scratch / "store", [entry])
    store.manifest = store.manifest._replace(version=_version([entry]), totals=_totals([entry]))
    store.point()
    _refused(dsctl, store.folder, MISMATCH)


def _totals(entries: Sequence[Entry]) -> Totals:
    tally = Tally()
    tally.add(entries)
    return tally.result()


def test_the_forger_can_make_a_good_store(scratch: Path, dsctl: Dsctl) -> None:
    """Or else the tests above might be refused for another reason than theirs."""
    entries = [_entry(b"a"), _entry(b"d", DIRECTORY), _entry(b"d/b"), _entry(b"l", SYMLINK, b"d/b")]
    store = Forged(scratch / "store", entries)
    store.manifest = store.manifest._replace(totals=_totals(entries))
    store.point()
    path = Path(dsctl.ok("cache", store.folder)["path"])
    assert (path / "l").read_bytes() == CONTENT


def test_a_shard_that_is_a_bomb(scratch: Path, dsctl: Dsctl) -> None:
    """4 GiB of zeros in some 130 KB; refused by the size in its header, so within little memory."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=4 << 30)
    zeros = bytes(16 << 20)
    shard = b"".join(compressor.compress(zeros) for _ in range(256)) + compressor.flush()
    assert len(shard) < (4 << 30) // 10_000
    limited = dataclasses.replace(dsctl, prefix=["prlimit", f"--as={3 << 30}"])
    _refused(limited, Forged(scratch / "store", [_entry(b"a")], shard).folder, BAD_STORE)


@pytest.mark.parametrize("says", ["the truth", "a lie"])
def test_a_frame_that_is_a_bomb(scratch: Path, dsctl: Dsctl, says: str) -> None:
    """1 GiB in a frame that the manifest describes as it is, or as small."""
    store = Forged(scratch / "store", [_entry(b"a")])
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=1 << 30)
    stored = b"".join(compressor.compress(bytes(16 << 20)) for _ in range(64)) + compressor.flush()
    plain = 1 << 30 if says == "the truth" else 2048
    frame = Frame(0, len(stored), 0, plain, xxhash.xxh3_128_digest(stored))
    bundle = Bundle(_hash(stored), (frame,))
    (store.folder / f"bundles/{bundle.digest}.tar.zst").write_bytes(stored)
    entry = _entry(b"a")
    store.manifest = store.manifest._replace(bundles=(bundle,), totals=_totals([entry]))
    store.point()
    limited = dataclasses.replace(dsctl, prefix=["prlimit", f"--as={1 << 30}"])
    _refused(limited, store.folder, BAD_STORE if says == "the truth" else MISMATCH)


def _reseal(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = orjson.loads(path.read_bytes())
    del document["xxh3"]
    changed = change(document)
    path.write_bytes(seal(changed if isinstance(changed, dict) else document))


DOCUMENTS = ["dsagent-store.json", "current.json", "manifests/*.json"]
CHANGES: dict[str, Callable[[dict[str, object]], object]] = {
    "unknown format version": lambda document: document.update({next(iter(document)): 2}),
    "unknown field": lambda document: document.update({"surprise": 1}),
    "missing field": lambda document: document.popitem(),
    "another first field": lambda document: {"first": 1, **document},
    "wrong type": lambda document: document.update({list(document)[1]: 5}),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two bundles."""
    folder = tmp_path_factory.mktemp("sound")
    trees.make_files(folder / "tree", 60, directories=2)
    (folder / "tree" / "large").write_bytes(random.Random(1).randbytes(9 << 20))
    Dsctl(folder / "packing").ok("pack", folder / "tree", folder / "store", "--files-per-bundle", "50")
    return folder / "store"


@pytest.fixture
def packed(scratch: Path, sound: Path) -> Path:
    """The same, to be broken."""
    return Path(shutil.copytree(sound, scratch / "store"))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_of_another_kind(
    dsctl: Dsctl, packed: Path, document: str, change: Callable[[dict[str, object]], object]
) -> None:
    (path,) = packed.glob(document)
    _reseal(path, change)
    _refused(dsctl, packed, BAD_STORE)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]\n", b"null", b'{"dsagent-store":1}', b"\xff" * 100, b"[" * 100_000])
def test_an_invalid_store_file_is_a_bad_store_and_never_data(dsctl: Dsctl, scratch: Path, text: bytes) -> None:
    store = scratch / "store"
    store.mkdir()
    (store / "dsagent-store.json").write_bytes(text)
    (store / "file").touch()
    _refused(dsctl, store, BAD_STORE)
    dsctl.fails(BAD_STORE, "ls", store)
    dsctl.fails(BAD_STORE, "pack", scratch / "store", store)


def test_a_folder_with_a_dataset_json_is_data(dsctl: Dsctl, scratch: Path) -> None:
    source = scratch / "tree"
    for name in ("dataset.json", "current.json", "manifests/x.json", "inner/dsagent-store.json"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text('{"dsagent-store": 1}')
    trees.assert_published(Path(dsctl.ok("cache", source)["path"]), trees.look(source))


@pytest.mark.parametrize("kind", ["current.json", "manifests/*", "shards/*", "bundles/*"])
def test_an_object_that_is_not_there(dsctl: Dsctl, packed: Path, kind: str) -> None:
    for path in packed.glob(kind):
        path.unlink()
    _refused(dsctl, packed, BAD_STORE)


def test_a_version_that_the_store_never_had(dsctl: Dsctl, packed: Path) -> None:
    dsctl.fails(13, "cache", packed, "--version", f"xxh3:{7:032x}")
    dsctl.assert_nothing_published()


@pytest.mark.parametrize("kind", ["current.json", "dsagent-store.json", "manifests/*", "shards/*", "bundles/*"])
def test_a_truncated_object(dsctl: Dsctl, packed: Path, kind: str) -> None:
    """Bundles are content; everything else is structure."""
    path = max(packed.glob(kind), key=lambda path: path.stat().st_size)
    for length in (path.stat().st_size - 1, path.stat().st_size // 2, 0):
        os.truncate(path, length)
        _refused(dsctl, packed, MISMATCH if kind.startswith("bundles") else BAD_STORE)


def _flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["current.json", "dsagent-store.json", "manifests/*", "shards/*"])
def test_a_flipped_bit_in_what_describes(dsctl: Dsctl, packed: Path, kind: str) -> None:
    (path,) = packed.glob(kind)
    randomness = random.Random()
    for bit in (0, randomness.randrange(8 * path.stat().st_size), 8 * path.stat().st_size - 1):
        _flip(path, bit)
        _refused(dsctl, packed, BAD_STORE)
        _flip(path, bit)
    dsctl.ok("cache", packed, "--name", "forged")


def test_a_flipped_bit_in_a_bundle(scratch: Path, packed: Path) -> None:
    randomness = random.Random()
    for number, path in enumerate(packed.glob("bundles/*")):
        dsctl = Dsctl(scratch / f"root-{number}")
        bits = 8 * path.stat().st_size
        for bit in (bits - 1, randomness.randrange(bits), 0):
            _flip(path, bit)
            problem = dsctl.fails(MISMATCH, "cache", packed)
            assert path.name in problem["subject"], problem
            assert not list(dsctl.root.glob("versions/*/*/*"))
            _flip(path, bit)
            if bit == bits - 1:
                # What a failed attempt has finished is not read again.
                trees.remove(dsctl.root)
        dsctl.ok("cache", packed)


@pytest.mark.parametrize(
    ("step", "kind", "change", "code"),
    [
        ("compare", "manifests/*", "delete", BAD_STORE),
        ("compare", "manifests/*", "replace", BAD_STORE),
        ("reserve", "shards/*", "delete", BAD_STORE),
        ("stage", "shards/*", "replace", BAD_STORE),
        ("stage", "bundles/*", "delete", BAD_STORE),
        ("stage", "bundles/*", "replace", MISMATCH),
        ("stage", "bundles/*", "truncate", MISMATCH),
    ],
)
def test_a_store_that_changes_under_the_reader(
    dsctl: Dsctl, packed: Path, step: str, kind: str, change: str, code: int
) -> None:
    process = dsctl.start("-v", "cache", packed, "--name", "forged")
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip() == f"step: {step}".encode():
            process.send_signal(signal.SIGSTOP)
            for path in packed.glob(kind):
                _change(path, change)
            process.send_signal(signal.SIGCONT)
    _, rest = process.communicate()
    # A command that had read the object already may well succeed, with what it had read.
    assert process.returncode in (code, 0), rest
    if process.returncode:
        dsctl.assert_nothing_published()
    else:
        assert kind == "manifests/*"
        assert dsctl.ok("verify", "forged")["bad"] == []


def _change(path: Path, change: str) -> None:
    size = path.stat().st_size
    if change == "truncate":
        os.truncate(path, size // 2)
        return
    path.unlink()
    if change == "replace":
        path.write_bytes(random.randbytes(size))
