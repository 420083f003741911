"""The ledger's arithmetic, and that the estimate of a tree's size is an upper bound."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsagent.adapters.linux import LinuxDisk
from dsagent.core.entries import BLOCK, DIRECTORY, FILE, NAME_MAX, Entry, path_order
from dsagent.core.manifest import Tally, Totals
from dsagent.core.space import Disk, Limits, Space, available, largest_directory, tree_space
from tests.fakes.node import FixedDisk

GB = 10**9
sizes = st.integers(0, 1 << 60)
spaces = st.builds(Space, sizes, st.integers(0, 1 << 40))


@given(spaces, spaces)
def test_one_space_covers_another_if_both_parts_do(one: Space, other: Space) -> None:
    assert one.covers(other) == (one.bytes >= other.bytes and one.inodes >= other.inodes)
    assert (one + other).covers(one)
    assert one + other - other == one


@given(spaces)
def test_the_headroom_is_never_less_than_a_fifth_more(space: Space) -> None:
    scaled = space.scaled(1.2)
    # 1.2 is not exact in binary; what it rounds to is within one part in 2**52.
    assert 5 * scaled.bytes >= 6 * space.bytes - (space.bytes >> 48)
    assert 5 * scaled.inodes >= 6 * space.inodes
    assert scaled.covers(space)


def _disk() -> Disk:
    return FixedDisk(Space(1000 * GB, 1_000_000), Space(400 * GB, 500_000)).measure()


def test_by_default_fifteen_and_five_percent_stay_free() -> None:
    assert available(_disk(), Limits(), Space(), Space()) == Space(250 * GB, 450_000)


def test_promises_are_not_promised_again() -> None:
    assert available(_disk(), Limits(), Space(), Space(10 * GB, 1000)) == Space(240 * GB, 449_000)


@pytest.mark.parametrize(("keep_free", "bytes_left"), [(0, 400 * GB), (100 * GB, 300 * GB), (500 * GB, -100 * GB)])
def test_what_is_kept_free_can_be_chosen(keep_free: int, bytes_left: int) -> None:
    assert available(_disk(), Limits(keep_free=keep_free), Space(), Space()).bytes == bytes_left


def test_a_capacity_counts_what_is_here_and_what_is_promised() -> None:
    limits = Limits(capacity=100 * GB)
    assert available(_disk(), limits, Space(60 * GB, 1), Space(15 * GB, 1)).bytes == 25 * GB


def test_a_capacity_larger_than_the_disk_does_not_help() -> None:
    assert available(_disk(), Limits(capacity=10_000 * GB), Space(), Space()).bytes == 250 * GB


def test_zero_inodes_in_all_are_no_limit() -> None:
    disk = FixedDisk(Space(1000 * GB, 0), Space(400 * GB, 0)).measure()
    assert available(disk, Limits(), Space(), Space(0, 10**9)).covers(Space(0, 10**12))


def test_small_files_take_whole_blocks() -> None:
    # The design's example: 150,000 files of 300 B look like 48 MB and take 617.
    tally = Tally()
    tally.add(Entry(b"%06d.jpg" % i, FILE, False, 300, 0, b"") for i in range(150_000))
    taken = tree_space(tally.result(), BLOCK)
    assert 150_000 * BLOCK <= taken.bytes < 150_000 * BLOCK * 1.02
    assert taken.inodes == 150_001


names = st.binary(min_size=1, max_size=NAME_MAX).filter(
    lambda name: name not in (b".", b"..") and not {0, 47} & set(name)
)


@settings(max_examples=30)
@given(st.lists(st.tuples(names, st.integers(0, 10 * BLOCK)), unique_by=lambda pair: pair[0], max_size=20))
def test_the_estimate_of_a_real_tree_is_an_upper_bound(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[bytes, int]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    entries = [Entry(b"sub" * 3, DIRECTORY, False, 0, 0, b"")]
    for name, size in files:
        path = entries[0].path + b"/" + name
        entries.append(Entry(path, FILE, False, size, 0, b""))
    entries.sort(key=lambda entry: path_order(entry.path))
    for entry in entries:
        path = os.fsencode(root) + b"/" + entry.path
        if entry.kind == DIRECTORY:
            os.mkdir(path)
        else:
            with open(path, "wb") as file:
                file.write(bytes(entry.size))
    tally = Tally()
    tally.add(entries)
    estimate = tree_space(tally.result(), LinuxDisk(str(root)).measure().block)
    assert estimate.covers(_taken(root))


def _taken(root: Path) -> Space:
    found = [root, *root.rglob("*")]
    return Space(sum(path.lstat().st_blocks * 512 for path in found), len(found))


@pytest.mark.parametrize("block", [1024, 4096])
def test_a_directory_of_ext4_is_limited_by_its_index(block: int) -> None:
    limit = largest_directory(Disk(Space(), Space(), block, "ext4"))
    assert limit is not None
    # Two levels of index: some 10 million short names with blocks of 4 KiB.
    assert limit < (block // 8) ** 2 * block
    assert limit > (block // 8) ** 2 * block // 2


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "tmpfs"])
def test_other_filesystems_have_no_limit_to_speak_of(kind: str) -> None:
    assert largest_directory(Disk(Space(), Space(), BLOCK, kind)) is None


def test_nothing_takes_one_directory() -> None:
    assert tree_space(Totals(), BLOCK) == Space(BLOCK, 1)
