"""Relations and scores as rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_topology.api import Gpu, Link, Relation
from gpu_topology.links import link, relation

HOST = "pci0000:00"
SWITCH = ("00:01.0", "01:00.0")  # a root port and a switch's upstream port


def gpu(number: int, *bridges: str, node: int = 0, **more: object) -> Gpu:
    pci = f"0000:{number + 0x40:02x}:00.0"
    return Gpu(number, pci, (*bridges, pci), node, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (gpu(0, HOST, *SWITCH, "02:00.0"), gpu(1, HOST, *SWITCH, "02:01.0"), Relation.PIX),
        (gpu(0, HOST, *SWITCH, "02:00.0"), gpu(1, HOST, *SWITCH, "02:00.0"), Relation.PIX),  # two functions of a card
        (gpu(0, HOST, *SWITCH, "02:00.0", "03:00.0", "04:00.0"), gpu(1, HOST, *SWITCH, "02:01.0"), Relation.PXB),
        (gpu(0, HOST, *SWITCH, "02:00.0", "03:00.0"), gpu(1, HOST, *SWITCH, "02:01.0"), Relation.PXB),
        (gpu(0, HOST, "00:01.0"), gpu(1, HOST, "00:02.0"), Relation.PHB),
        (gpu(0, HOST), gpu(1, HOST), Relation.PHB),  # what a virtual machine shows
        (gpu(0, HOST, "00:01.0"), gpu(1, "pci0000:40", "40:01.0"), Relation.NODE),
        (gpu(0, HOST, node=0), gpu(1, "pci0000:40", node=1), Relation.SYS),
        (gpu(0, HOST, node=-1), gpu(1, "pci0000:40", node=-1), Relation.SYS),  # unknown is not the same
        (gpu(0), gpu(1), Relation.NODE),  # no path at all, but a node
    ],
)
def test_relation(one: Gpu, other: Gpu, expected: Relation) -> None:
    assert relation(one, other) is relation(other, one) is expected


def test_a_machine_with_one_numa_node_has_all_devices_on_it() -> None:
    assert relation(gpu(0, HOST, node=-1), gpu(1, "pci0000:40", node=-1), one_node=True) is Relation.NODE


@pytest.mark.parametrize(
    ("one", "other", "text", "score"),
    [
        (gpu(0, HOST, node=0), gpu(1, "pci0000:40", node=1), "SYS", 10),
        (gpu(0, HOST), gpu(1, "pci0000:40"), "NODE", 20),
        (gpu(0, HOST, "a"), gpu(1, HOST, "b"), "PHB", 30),
        (gpu(0, HOST, *SWITCH, "c", "d", "e"), gpu(1, HOST, *SWITCH, "f"), "PXB", 40),
        (gpu(0, HOST, *SWITCH, "c"), gpu(1, HOST, *SWITCH, "d"), "PIX", 50),
        (gpu(0, HOST, *SWITCH, "c", board="b"), gpu(1, HOST, *SWITCH, "d", board="b"), "PIX", 60),
        (gpu(0, HOST, nvlinks={"0000:41:00.0": 2}), gpu(1, "pci0000:40", node=1), "NV2", 210),
        (gpu(0, HOST, *SWITCH, "c", switch_nvlinks=6), gpu(1, HOST, *SWITCH, "d", switch_nvlinks=5), "NV5", 550),
        (gpu(0, HOST, *SWITCH, "c", switch_nvlinks=6), gpu(1, HOST, *SWITCH, "d"), "PIX", 50),
    ],
)
def test_score_adds_what_pcie_and_nvlink_give(one: Gpu, other: Gpu, text: str, score: int) -> None:
    assert (str(link(one, other)), link(one, other).score) == (text, score)
    assert link(one, other) == link(other, one)


paths = st.lists(st.sampled_from("abc"), max_size=5).map(tuple)


@given(paths, paths, st.integers(-1, 2), st.integers(-1, 2))
def test_relation_is_the_same_both_ways_and_nearest_to_itself(
    one: tuple[str, ...], other: tuple[str, ...], near: int, far: int
) -> None:
    first, second = gpu(0, *one, node=near), gpu(1, *other, node=far)
    assert relation(first, second) is relation(second, first)
    assert relation(first, second) <= relation(first, gpu(2, *one, node=near)) or len(one) < 2
    assert Link(relation(first, second)).score in (10, 20, 30, 40, 50)
