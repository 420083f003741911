"""Reading sysfs, and whatever may be found in its place."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_topology.discover import find_topology
from gpu_topology.picture import show_svg
from gpu_topology.recording import Inputs, load_recording
from gpu_topology.sysfs import LINK, Directory, Recorded, cpu_list, number, resolve
from gpu_topology.text import ranges, show_wide
from gpu_topology.tree import show_tree
from tests.machines.build import MACHINES
from tests.machines.trees import put, tree_of

SEEN = load_recording(MACHINES / "roce-2socket")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        (" 7 ", (7,)),
        ("", ()),
        (None, ()),
        ("3-1", ()),
        ("0-2,x,5-", (0, 1, 2)),
        ("99999999999", ()),
        ("65534-999999", (65534, 65535)),
    ],
)
def test_cpu_list(text: str | None, numbers: tuple[int, ...]) -> None:
    assert cpu_list(text) == numbers


@given(st.sets(st.integers(0, 300)))
def test_cpu_list_reads_what_ranges_writes(numbers: set[int]) -> None:
    assert set(cpu_list(ranges(numbers))) == numbers


@pytest.mark.parametrize(
    ("text", "value"), [("0x10de", 0x10DE), ("-1", -1), ("12", 12), ("", -1), (None, -1), ("1 2", -1), ("9" * 40, -1)]
)
def test_number(text: str | None, value: int) -> None:
    assert number(text) == value


def test_links_that_lead_out_of_the_root_are_none(tmp_path: Path) -> None:
    assert resolve("bus/a", "../devices/b") == "devices/b"
    assert resolve("bus/a", "../../etc/passwd") is None
    assert resolve("bus/a", "/etc/passwd") is None
    (tmp_path / "out").symlink_to("../../etc")
    assert Directory(tmp_path).target("out") is None


@pytest.mark.parametrize("name", ["roce-2socket", "dgx-2", "gb200", "no-gpu"])
def test_a_folder_reads_as_its_recording(name: str, tmp_path: Path) -> None:
    recorded = load_recording(MACHINES / name)
    live = replace(recorded, sysfs=Directory(put(tree_of(name), tmp_path)))
    assert find_topology(live) == find_topology(recorded)


def test_this_machine_is_read_without_an_error() -> None:
    topology, _ = find_topology(Inputs(Directory(Path("/sys")), {}, {}))
    assert topology.machine.cpus


def test_bytes_that_are_no_text_are_read(tmp_path: Path) -> None:
    root = put(tree_of("roce-2socket"), tmp_path)
    (root / "devices/system/node/node0/cpulist").write_bytes(b"\xff\xfe0-3")
    topology, _ = find_topology(replace(SEEN, sysfs=Directory(root)))
    assert topology.machine.numa_nodes[0].cpus == ()


def all_paths(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, value in tree.items():
        found.append((*above, name))
        if isinstance(value, dict):
            found += all_paths(value, (*above, name))
    return found


PATHS = all_paths(tree_of("roce-2socket"))
garbage: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        ["", "-1", "0x0302ff", "0x030200", "0x020000", "0x10de", "99999999999999999999", "4: ACTIVE", "RoCE v2"]
    ),
    st.text(max_size=12),
    st.sampled_from([*("/".join(path) for path in PATHS[::7]), "../..", ".", "/", "loop"]).map(lambda to: LINK + to),
    st.sampled_from([{}, {"0": "RoCE v2"}, {"net": {"a": {}}}, None, 7, ["list"]]),
)
damage = st.lists(st.tuples(st.sampled_from(PATHS), st.one_of(st.just("gone"), garbage)), min_size=1, max_size=12)


@given(damage)
def test_a_damaged_tree_is_read_as_far_as_it_goes(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    tree: Any = copy.deepcopy(tree_of("roce-2socket"))
    for path, value in changes:
        here = tree
        for name in path[:-1]:
            here = here.get(name) if isinstance(here, dict) else None
        if isinstance(here, dict) and value == "gone":
            here.pop(path[-1], None)
        elif isinstance(here, dict):
            here[path[-1]] = value
    topology, bound = find_topology(replace(SEEN, sysfs=Recorded(tree)))
    for show in (show_wide, show_tree, show_svg):
        assert show(topology)
    assert topology.document()["gpus"] is not None
    assert find_topology(replace(SEEN, sysfs=Recorded(tree)), bound=bound)[1] == bound


class Going(Recorded):
    """A tree of which more and more goes while it is read."""

    def __init__(self, tree: Mapping[str, object], left: int) -> None:
        super().__init__(tree)
        self._left = left

    def _find(self, path: str) -> object:
        self._left -= 1
        return super()._find(path) if self._left > 0 else None


@given(st.integers(0, 900))
def test_devices_that_go_while_they_are_read_are_not_there(left: int) -> None:
    topology, _ = find_topology(replace(SEEN, sysfs=Going(tree_of("roce-2socket"), left)))
    assert len(topology.machine.gpus) <= 8
    assert show_wide(topology)
    assert show_svg(topology)
