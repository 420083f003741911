import io
import tarfile

from hypothesis import given

from dsagent.core import tarstream
from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry
from tests.unit.trees import entries


def read(tree: list[Entry]) -> list[tarfile.TarInfo]:
    """What Python's own reader finds in the headers; data are left out, so sizes must be 0."""
    stream = b"".join(tarstream.header(entry) for entry in tree) + tarstream.END
    assert len(stream) % tarstream.RECORD == 0
    with tarfile.open(fileobj=io.BytesIO(stream), encoding="latin-1") as tar:
        return tar.getmembers()


@given(entries())
def test_another_reader_finds_the_same_entries(tree: list[Entry]) -> None:
    tree = [entry._replace(size=0, mtime_ns=abs(entry.mtime_ns)) for entry in tree]
    found = read(tree)
    assert [member.name.encode("latin-1") for member in found] == [entry.path for entry in tree]
    for member, entry in zip(found, tree, strict=True):
        kinds = {FILE: tarfile.REGTYPE, DIRECTORY: tarfile.DIRTYPE, SYMLINK: tarfile.SYMTYPE}
        assert member.type == kinds[entry.kind]
        assert member.mtime == entry.mtime_ns // 10**9
        if entry.kind == FILE:
            assert bool(member.mode & 0o100) == entry.executable
        if entry.kind == SYMLINK:
            assert member.linkname.encode("latin-1") == entry.content


def test_long_names_and_targets() -> None:
    name, target = b"/".join([b"d" * 250] * 20), b"t" * 300
    (link,) = read([Entry(name, SYMLINK, False, 0, 0, target)])
    assert (link.name.encode(), link.linkname.encode()) == (name, target)


def test_sizes_beyond_octal() -> None:
    header = tarstream.header(Entry(b"a", FILE, False, 9 << 33, -5 * 10**9, bytes(16)))
    member = tarfile.TarInfo.frombuf(header, "latin-1", "strict")
    assert (member.size, member.mtime) == (9 << 33, -5)


@given(entries())
def test_the_length_is_known_before(tree: list[Entry]) -> None:
    for entry in tree:
        if entry.kind == FILE:
            assert len(tarstream.header(entry)) == tarstream.header_length(entry.path)
