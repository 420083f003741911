"""Keys as a store lists them become entries in path order."""

from hypothesis import given
from hypothesis import strategies as st

from dsagent.adapters.keyorder import KeyTree, Record, in_path_order
from dsagent.core.entries import DIRECTORY, FILE, path_order

PARTS = st.text(alphabet="a-.0z", min_size=1, max_size=3).filter(lambda part: part not in (".", ".."))
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/".join(parts).encode())


def record(path: bytes) -> Record:
    return path, len(path), 1_700_000_000_123_000_000, b'"%b"' % path.hex().encode()


def as_files(paths: set[bytes]) -> set[bytes]:
    """Those that are no folder of another."""
    return {path for path in paths if not any(other.startswith(path + b"/") for other in paths)}


@given(st.sets(PATHS, max_size=40))
def test_records_come_out_as_they_were_in_path_order(paths: set[bytes]) -> None:
    listed = [record(path) for path in sorted(paths)]
    assert list(in_path_order(listed)) == [record(path) for path in sorted(paths, key=path_order)]


@given(st.permutations(sorted({b"a", b"a-b/c", b"a/b", b"b.txt", b"b/c", b"z"})))
def test_a_store_without_order_is_put_in_order(paths: list[bytes]) -> None:
    ordered = in_path_order([record(path) for path in paths], b"\xff")
    assert [path for path, *_ in ordered] == sorted(paths, key=path_order)


def test_nothing_is_held_back_without_need() -> None:
    listed = iter([record(b"a/1"), record(b"a/2"), record(b"b")])
    ordered = in_path_order(listed)
    assert next(ordered) == record(b"a/1")
    assert next(listed) == record(b"a/2")


@given(st.sets(PATHS, min_size=1, max_size=40))
def test_each_folder_comes_once_before_what_it_holds(paths: set[bytes]) -> None:
    files = as_files(paths)
    tree = KeyTree()
    stamps = list(tree.stamps(in_path_order(map(record, sorted(files)))))
    folders = {path[:at] for path in files for at in range(len(path)) if path[at : at + 1] == b"/"}
    assert [stamp.path for stamp in stamps] == sorted(files | folders, key=path_order)
    assert {stamp.path for stamp in stamps if stamp.kind == DIRECTORY} == folders
    assert tree.bad == []


@given(st.sets(PATHS, max_size=20), st.sets(PATHS, max_size=10))
def test_what_is_both_file_and_folder_is_bad(files: set[bytes], markers: set[bytes]) -> None:
    tree = KeyTree()
    keys = sorted(files | {marker + b"/" for marker in markers})
    listed = ((key, 0, 0, b"") for key in keys)
    stamps = list(tree.stamps(in_path_order(listed)))
    both = {file for file in files if any((key.startswith(file + b"/")) for key in keys)}
    assert set(tree.bad) == both
    paths = [stamp.path for stamp in stamps if stamp.path not in both]
    assert paths == sorted(set(paths), key=path_order)
    assert {stamp.path for stamp in stamps if stamp.kind == FILE} == files
