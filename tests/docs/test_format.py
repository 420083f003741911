"""docs/format.md is exact: a reader made from it, without anything of dsagent, reads what dsctl writes."""

import base64
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import xxhash
import zstandard

DOCUMENT = Path(__file__).parents[2] / "docs" / "format.md"


class Entry(NamedTuple):
    path: bytes
    kind: str
    size: int = 0
    mtime: int = 0
    digest: bytes = b""
    link: bytes = b""
    bundle: int = -1
    offset: int = 0


def digest(data: bytes) -> bytes:
    return xxhash.xxh3_128(data).digest()


def read_sealed(path: Path, magic: str) -> dict[str, Any]:
    data = path.read_bytes()
    body, tail = data[:-44], data[-44:]
    assert tail == b',"xxh3":"' + digest(body).hex().encode() + b'"}\n'
    document: dict[str, Any] = json.loads(body + b"}")
    assert next(iter(document)) == magic
    assert document.pop(magic) == 1
    return document


def read_manifest(store: Path, version: str) -> dict[str, Any]:
    manifest = read_sealed(store / "manifests" / f"{version.removeprefix('xxh3:')}.json", "dsagent-manifest")
    assert manifest.keys() == {"dataset", "version", "created", "totals", "shards", "bundles"}
    assert manifest["version"] == version
    return manifest


def read_entries(store: Path, manifest: dict[str, Any]) -> list[Entry]:
    entries: list[Entry] = []
    for name, count in manifest["shards"]:
        stored = (store / "shards" / f"{name}.zst").read_bytes()
        assert digest(stored).hex() == name
        shard = list(read_shard(json.loads(zstandard.ZstdDecompressor().decompress(stored))))
        assert len(shard) == count
        entries += shard
    order = [entry.path.replace(b"/", b"\0") for entry in entries]
    assert order == sorted(set(order))
    return entries


def read_shard(columns: dict[str, Any]) -> Iterator[Entry]:
    assert columns["format"] == 1
    digests = bytes.fromhex(columns["digest"])
    files = iter(zip(columns["size"], columns["mtime"], columns["bundle"], columns["offset"], strict=True))
    links = map(base64.b64decode, columns["link"])
    at = 0
    for index, (text, kind) in enumerate(zip(columns["path"], columns["kind"], strict=True)):
        other = columns["path_b64"].get(str(index))
        path = text.encode() if other is None else base64.b64decode(other)
        if kind in "fx":
            size, mtime, bundle, offset = next(files)
            yield Entry(path, kind, size, mtime, digests[at : at + 16], bundle=bundle, offset=offset)
            at += 16
        else:
            yield Entry(path, kind, link=next(links) if kind == "l" else b"")


def read_plain(store: Path, bundle: dict[str, Any]) -> bytes:
    """A bundle's plain stream, frame by frame."""
    stored = (store / "bundles" / f"{bundle['digest']}.tar.zst").read_bytes()
    assert digest(stored).hex() == bundle["digest"]
    plain = []
    at = 0
    for length, plain_length, frame_digest in bundle["frames"]:
        frame = stored[at : at + length]
        assert digest(frame).hex() == frame_digest
        assert zstandard.frame_content_size(frame) == plain_length
        plain.append(zstandard.ZstdDecompressor().decompress(frame))
        at += length
    assert at == len(stored)
    assert plain[-1] == bytes(1024)
    return b"".join(plain)


def record(entry: Entry, content: bytes) -> bytes:
    name = entry.path.rpartition(b"/")[2]
    head = struct.pack("<cBQI", entry.kind.replace("x", "f").encode(), entry.kind == "x", entry.size, len(name))
    if entry.kind == "l":
        content = struct.pack("<I", len(entry.link)) + entry.link
    return head + name + content


def records_of(entries: list[Entry], directory: bytes) -> bytes:
    """The records of a directory's children; recursive, as the document says it and not as dsagent does it."""
    children = [entry for entry in entries if entry.path.rpartition(b"/")[0] == directory]
    children.sort(key=lambda child: child.path.rpartition(b"/")[2])
    return b"".join(
        record(child, digest(records_of(entries, child.path)) if child.kind == "d" else child.digest)
        for child in children
    )


def read_version(store: Path) -> tuple[str, dict[bytes, tuple[str, bytes, int]]]:
    """The current version, and each path's kind, content or target, and modification time."""
    assert read_sealed(store / "dsagent-store.json", "dsagent-store") == {"dataset": "tree"}
    version = read_sealed(store / "current.json", "dsagent-current")["version"]
    manifest = read_manifest(store, version)
    entries = read_entries(store, manifest)
    assert "xxh3:" + digest(records_of(entries, b"")).hex() == version
    assert totals_of(entries) == manifest["totals"]
    plain = [read_plain(store, bundle) for bundle in manifest["bundles"]]
    tree = {}
    for entry in entries:
        content = entry.link
        if entry.kind in "fx":
            content = plain[entry.bundle][entry.offset : entry.offset + entry.size]
            assert digest(content) == entry.digest
        tree[entry.path] = entry.kind, content, entry.mtime
    return version, tree


def totals_of(entries: list[Entry]) -> list[int]:
    sizes = [entry.size for entry in entries if entry.kind in "fx"]
    names: dict[bytes, int] = {}
    for entry in entries:
        directory, _, name = entry.path.rpartition(b"/")
        names[directory] = names.get(directory, 0) + 8 + -(-len(name) // 4) * 4
    kinds = "".join(entry.kind for entry in entries)
    rounded = sum(-(-size // 4096) * 4096 for size in sizes)
    counts = [len(sizes), kinds.count("d"), kinds.count("l"), sum(sizes), rounded]
    return [*counts, sum(names.values()), max(names.values(), default=0)]


def tree_on_disk(root: Path) -> dict[bytes, tuple[str, bytes, int]]:
    found: dict[bytes, tuple[str, bytes, int]] = {}
    top = os.fsencode(root)
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            key = os.path.relpath(path, top)
            if os.path.islink(path):
                found[key] = "l", os.readlink(path), 0
            elif name in folders:
                found[key] = "d", b"", 0
            else:
                kind = "x" if status.st_mode & 0o100 else "f"
                with open(path, "rb") as file:
                    found[key] = kind, file.read(), status.st_mtime_ns
    return found


def dsctl(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "dsagent.entrypoints.dsctl", "-o", "json", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # type: ignore[no-any-return]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Real files, and all that is odd about names and sizes."""
    root = tmp_path / "tree"
    shutil.copytree(Path(sysconfig.get_path("stdlib"), "email"), root / "email")
    for name in (b"a-b", b"a.txt", b"new\nline", b"\xff\xfe", b"n" * 255):
        (root / os.fsdecode(name)).write_bytes(name)
    (root / "a" / ("d" * 90) / ("e" * 90)).mkdir(parents=True)
    (root / "a" / ("d" * 90) / ("e" * 90) / "deep").write_bytes(b"below a long path")
    (root / "hollow").mkdir()
    (root / "nothing").touch()
    (root / "large").write_bytes(bytes(range(256)) * (81 << 10) + b"an end that fits no block")
    (root / "run").write_bytes(b"#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("a/../run")
    (root / "long-link").symlink_to("./" * 80 + "run")
    os.utime(root / "a.txt", ns=(-1, -1_500_000_000))
    return root


def test_reader_reproduces_tree_and_version(tree: Path, tmp_path: Path) -> None:
    packed = dsctl("pack", tree, tmp_path / "store", "--files-per-bundle", 20)
    version, read = read_version(tmp_path / "store")
    assert packed["bundles"] > 1
    assert version == packed["version"]
    assert read == tree_on_disk(tree)


def test_reader_follows_to_bundles_of_earlier_versions(tree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = dsctl("pack", tree, store)
    (tree / "a.txt").write_bytes(b"changed")
    (tree / "nothing").unlink()
    second = dsctl("pack", tree, store)
    assert second["new_bundles"] == 1
    assert second["bundles"] == 2
    assert read_version(store) == (second["version"], tree_on_disk(tree))
    assert read_manifest(store, first["version"])["bundles"][0] in read_manifest(store, second["version"])["bundles"]


def test_a_bundle_is_a_tar_archive(tree: Path, tmp_path: Path) -> None:
    dsctl("pack", tree, tmp_path / "store")
    (bundle,) = (tmp_path / "store" / "bundles").iterdir()
    with bundle.open("rb") as stored:
        plain = zstandard.ZstdDecompressor().stream_reader(stored, read_across_frames=True).read()
    with tarfile.open(fileobj=io.BytesIO(plain), encoding="utf-8", errors="surrogateescape") as archive:
        found = {os.fsencode(member.name): member for member in archive}
        expected = tree_on_disk(tree)
        assert found.keys() == expected.keys()
        for path, (kind, content, mtime) in expected.items():
            member = found[path]
            if kind == "l":
                assert os.fsencode(member.linkname) == content
            elif kind == "d":
                assert member.isdir()
            else:
                data = archive.extractfile(member)
                assert data is not None
                assert data.read() == content
                assert (member.mode, member.mtime) == (0o755 if kind == "x" else 0o644, mtime // 10**9)


def test_stamps_have_a_row_for_each_entry(tree: Path, tmp_path: Path) -> None:
    for path in tree.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    version = dsctl("pack", tree, tmp_path / "store")["version"]
    source = digest(str(tree).encode()).hex()
    data = (tmp_path / "store" / "stamps" / f"{version.removeprefix('xxh3:')}-{source}.zst").read_bytes()
    assert digest(data[:-16]) == data[-16:]
    times: list[int] = []
    tokens: list[bytes] = []
    at = 0
    while at < len(data) - 16:
        (length,) = struct.unpack_from("<I", data, at)
        block = json.loads(zstandard.ZstdDecompressor().decompress(data[at + 4 : at + 4 + length]))
        assert block["format"] == 1
        times += block["mtime"]
        tokens += [text.encode("latin-1") for text in block["token"]]
        at += 4 + length
    entries = read_entries(tmp_path / "store", read_manifest(tmp_path / "store", version))
    for entry, time, token in zip(entries, times, tokens, strict=True):
        status = os.lstat(os.path.join(os.fsencode(tree), entry.path))
        if entry.kind in "fx":
            assert time == status.st_mtime_ns
            assert token in (b"?", b"%d" % status.st_ctime_ns)  # ?: too young when it was listed
        else:
            assert (time, token) == (0, entry.link)


def test_a_root_has_the_same_layout(tree: Path, tmp_path: Path) -> None:
    store, root = tmp_path / "store", tmp_path / "root"
    dsctl("pack", tree, store)
    packed = Path(dsctl("--root", root, "--keep-free", 0, "cache", store)["path"])
    unpacked = Path(dsctl("--root", root, "--keep-free", 0, "cache", tree, "--name", "plain")["path"])
    version, content = read_version(store)
    for data in (packed, unpacked):
        assert tree_on_disk(data) == content
        assert {path.stat().st_mode & 0o777 for path in [data, *data.rglob("*")]} <= {0o444, 0o555}
        local = read_manifest(data.parent / "manifest", version)
        assert len(read_entries(data.parent / "manifest", local)) == len(content)
        assert read_sealed(data.parent / "manifest" / "record.json", "dsagent-cached")["version"] == version
    assert read_manifest(packed.parent / "manifest", version) == read_manifest(store, version)
    entries = read_entries(unpacked.parent / "manifest", read_manifest(unpacked.parent / "manifest", version))
    assert {(entry.bundle, entry.offset) for entry in entries} == {(-1, 0)}


def example(name: str) -> str:
    found = re.search(rf"^```[a-z]+ {name}\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].strip()


def test_the_worked_example_is_right(tmp_path: Path) -> None:
    run = Entry(b"bin/run", "x", 10, digest=digest(b"#!/bin/sh\n"))
    readme = Entry(b"README", "f", 6, digest=digest(b"hello\n"))
    entries = [readme, Entry(b"bin", "d"), run, Entry(b"empty", "d"), Entry(b"latest", "l", link=b"bin/run")]
    assert records_of(entries, b"bin") == bytes.fromhex(example("bin"))
    assert digest(records_of(entries, b"bin")) == bytes.fromhex(example("bin-digest"))
    assert records_of(entries, b"") == bytes.fromhex(example("root"))
    assert "xxh3:" + digest(records_of(entries, b"")).hex() == example("version")
    root = tmp_path / "example"
    (root / "bin").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "README").write_bytes(b"hello\n")
    (root / "bin" / "run").write_bytes(b"#!/bin/sh\n")
    (root / "bin" / "run").chmod(0o755)
    (root / "latest").symlink_to("bin/run")
    assert dsctl("pack", root, tmp_path / "store")["version"] == example("version")
