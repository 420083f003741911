"""Random damage to everything a reader reads: it gives what was written, or the one error that is for that.

`python tests/fuzz/test_reader.py` fuzzes for ever where atheris is installed; under pytest a number of random
mutations are tried.
"""

import importlib
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
import zstandard

from dsagent.adapters.directory import DirectoryStore
from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry, Stamp
from dsagent.core.errors import BadStore, DigestMismatch
from dsagent.core.manifest import (
    Bundle,
    Frame,
    Manifest,
    ShardRef,
    Totals,
    decode_manifest,
    decode_pointer,
    decode_store,
    encode_manifest,
    encode_pointer,
    encode_store,
)
from dsagent.core.ports import Location
from dsagent.core.shards import decode_shard, decode_stamps, encode_shard, encode_stamps
from dsagent.engine.crew import Crew
from dsagent.engine.manifests import read_entries, read_manifest
from dsagent.engine.unpack import UnpackPlan
from dsagent.wiring import Wiring
from tests.support import trees
from tests.support.command import Dsctl

MUTATIONS = 300

Target = Callable[[bytes], None]

_ENTRIES = [
    Entry(b"a", DIRECTORY, False, 0, 0, b""),
    Entry(b"a/link", SYMLINK, False, 0, 0, b"../b"),
    Entry(b"a/\xff", FILE, True, 5, 7, bytes(range(16)), 0, 512),
    Entry(b"b", FILE, False, 0, -3, bytes(16), 0, 0),
]
_STAMPS = [Stamp(entry.path, entry.kind, entry.executable, entry.size, entry.mtime_ns, b"12") for entry in _ENTRIES]
_MANIFEST = Manifest(
    "name",
    f"xxh3:{1:032x}",
    "2026-01-01T00:00:00Z",
    Totals(2, 1, 1, 5, 4096, 60, 40),
    (ShardRef(f"{2:032x}", 4),),
    (Bundle(f"{3:032x}", (Frame(0, 100, 0, 2048, bytes(16)), Frame(100, 30, 2048, 1024, bytes(16)))),),
)


def _shard(data: bytes) -> None:
    for entry in decode_shard(data, "fuzz", [1 << 20]):
        assert not entry.path.startswith(b"/")
        assert b".." not in entry.path.split(b"/")


def _stamps(data: bytes) -> None:
    try:
        decode_stamps(data)
    except ValueError:  # stamps only save reading: what is not valid is as good as none
        return


SEEDS: dict[str, tuple[bytes, Target]] = {
    "store": (encode_store("name"), lambda data: _text(decode_store(data, "fuzz"))),
    "pointer": (encode_pointer(f"xxh3:{1:032x}"), lambda data: _text(decode_pointer(data, "fuzz"))),
    "manifest": (encode_manifest(_MANIFEST), lambda data: _described(decode_manifest(data, "fuzz"))),
    "shard": (encode_shard(_ENTRIES), _shard),
    "stamps": (encode_stamps(_STAMPS), _stamps),
}


def _text(value: object) -> None:
    assert isinstance(value, str)


def _described(manifest: Manifest) -> None:
    for bundle in manifest.bundles:
        assert bundle.plain >= 0
        assert bundle.stored >= 0


def check(target: Target, data: bytes) -> None:
    """Whatever `data` is: a result that holds, or BadStore."""
    try:
        target(data)
    except BadStore:
        return


def mutate(data: bytes, randomness: random.Random) -> bytes:
    """Some bytes changed, taken out, repeated or put in."""
    changed = bytearray(data)
    for _ in range(randomness.randint(1, 4)):
        at = randomness.randrange(len(changed) + 1)
        end = min(len(changed), at + randomness.choice((1, 1, 2, 8, 64)))
        match randomness.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << randomness.randrange(8)
            case 1:
                del changed[at:end]
            case 2:
                changed[at:at] = changed[at:end]
            case 3:
                changed[at:end] = randomness.randbytes(end - at)
            case _:
                changed[at:at] = randomness.choice((b"0", b"-1", b"9" * 30, b'"', b"[", b"\0", b"1e9", b"null"))
    return bytes(changed)


@pytest.mark.parametrize("name", SEEDS)
def test_random_damage(name: str) -> None:
    seed, target = SEEDS[name]
    target(seed)
    for number in range(MUTATIONS):
        check(target, mutate(seed, random.Random(number)))


@pytest.mark.parametrize("name", ["shard", "stamps"])
def test_random_damage_below_the_compression(name: str) -> None:
    """Damage that the checksum of zstd would hide from the rules."""
    seed, target = SEEDS[name]
    plain = zstandard.ZstdDecompressor().decompress(seed)
    for number in range(MUTATIONS):
        damaged = mutate(plain, random.Random(number))
        check(target, zstandard.ZstdCompressor().compress(damaged))


@pytest.mark.parametrize("name", ["store", "pointer", "manifest"])
def test_random_damage_below_the_seal(name: str) -> None:
    """Damage by someone who writes the right checksum: only what is valid passes."""
    seed, target = SEEDS[name]
    body = seed[: seed.rindex(b',"xxh3":')]
    for number in range(MUTATIONS):
        damaged = mutate(body, random.Random(number))
        sealed = damaged + b',"xxh3":"' + xxhash.xxh3_128_hexdigest(damaged).encode() + b'"}\n'
        check(target, sealed)


class BundleReader:
    """Unpacks a store of two small bundles of which one has other bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        trees.make_files(folder / "tree", 30, directories=2)
        Dsctl(folder / "root").ok("pack", folder / "tree", folder / "store", "--files-per-bundle", "20")
        self._path = max((folder / "store").glob("bundles/*"), key=lambda path: path.stat().st_size)
        self.seed = self._path.read_bytes()
        (manifest,) = (folder / "store").glob("manifests/*")
        self._store = DirectoryStore(Location(str(folder / "store")))
        self._manifest = read_manifest(self._store, f"xxh3:{manifest.stem}")

    def read(self, data: bytes) -> None:
        """Raises DigestMismatch or BadStore, or makes just the files that were packed."""
        self._path.write_bytes(data)
        with tempfile.TemporaryDirectory(dir=self._folder) as out:
            into = Path(out) / "data"
            for number in range(2):
                (into / f"d00{number}").mkdir(parents=True)
            plan = UnpackPlan(self._store.location, self._manifest.bundles, str(into), str(Path(out) / "journal"))
            jobs = [
                job for entry in read_entries(self._store, self._manifest) if entry.kind == FILE
                for job in plan.add(entry)
            ]  # fmt: skip
            jobs += plan.rest()
            with Crew(0, Wiring(), lambda _size, _files: None) as crew:
                try:
                    for _ in crew.in_order(((None, job) for job in jobs), 1):
                        pass
                except (DigestMismatch, BadStore):
                    return
            trees.assert_same(trees.look(into), trees.look(self._folder / "tree"))


def test_random_damage_to_a_bundle(tmp_path: Path) -> None:
    reader = BundleReader(tmp_path)
    reader.read(reader.seed)
    for number in range(MUTATIONS // 3):
        reader.read(mutate(reader.seed, random.Random(number)))


def fuzz() -> None:
    """Runs until something is found."""
    atheris = importlib.import_module("atheris")
    targets = [target for _, target in SEEDS.values()]

    def one(data: bytes) -> None:
        if data:
            check(targets[data[0] % len(targets)], data[1:])

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz()
