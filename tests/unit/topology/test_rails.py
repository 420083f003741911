"""Who belongs to which rail, what is paired, and what stays as it was."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_topology.api import Gpu, Link, Machine, Nic, NumaNode, Rail, Relation, Vf
from gpu_topology.discover import find_topology
from gpu_topology.errors import UsageError
from gpu_topology.links import all_links
from gpu_topology.node_file import NodeFile, bind_indices, number_subnets
from gpu_topology.rails import check_resource, make_rails, near_gpus, pair
from gpu_topology.recording import Inputs, load_recording
from gpu_topology.sysfs import Recorded
from tests.machines.build import MACHINES

GPU0, GPU2 = "0000:19:00.0", "0000:1b:00.0"


def nic(number: int, subnet: str, *, vfs: int = 0, node: int = 0, roce: bool = True) -> Nic:
    pci = f"0000:{number:02x}:00.0"
    made = tuple(Vf(n, f"vf{number}.{n}", f"0000:{number:02x}:00.{n + 1}", ("pci", "up", pci)) for n in range(vfs))
    return Nic(f"mlx5_{number}", pci, ("pci", "up", pci), node, roce=roce, subnet=subnet, vfs=made)


def machine(gpus: int, *nics: Nic) -> Machine:
    found = tuple(Gpu(n, f"0000:{n + 0x80:02x}:00.0", ("pci", "up", f"g{n}"), 0) for n in range(gpus))
    return Machine(found, nics, (), ())


def rails_of(
    made: Machine, bound: NodeFile | None = None, numbers: Mapping[str, int] | None = None
) -> tuple[Rail, ...]:
    bound = bound or NodeFile()
    near = near_gpus(made, all_links(made), bound.pairs)
    subnets = [one.subnet for one in made.nics if one.pci in near]
    chosen = number_subnets(bound.rails, subnets) if numbers is None else numbers
    return make_rails(made, near, pair(near, made.nics, bound.pairs), chosen, "x.io/r{n}")


def ids(rails: Iterable[Rail]) -> dict[str, list[str]]:
    return {rail.resource: [device.id for device in rail.devices] for rail in rails}


def without(name: str, gone: str) -> Inputs:
    """A recorded machine without the PCI functions whose address begins so."""
    inputs = load_recording(MACHINES / name)
    assert isinstance(inputs.sysfs, Recorded)

    class Gone(Recorded):
        def names(self, path: str, prefix: str = "") -> list[str]:
            return [one for one in super().names(path, prefix) if not one.startswith(gone)]

    return replace(inputs, sysfs=Gone(inputs.sysfs._tree))


def test_equally_near_cards_share_the_gpus() -> None:
    found = rails_of(machine(4, nic(1, "10.1.0.0/24", vfs=2), nic(2, "10.2.0.0/24", vfs=2)))
    assert ids(found) == {"x.io/r1": ["gpu0/vf1.0", "gpu2/vf1.1"], "x.io/r2": ["gpu1/vf2.0", "gpu3/vf2.1"]}


def test_one_subnet_is_one_rail_whatever_the_cards() -> None:
    found = rails_of(machine(2, nic(1, "10.1.0.0/24"), nic(2, "10.1.0.0/24")))
    assert ids(found) == {"x.io/r1": ["gpu0/mlx5_1", "gpu1/mlx5_2"]}


@pytest.mark.parametrize("card", [nic(1, "10.1.0.0/24", roce=False), nic(1, "")])
def test_a_card_without_roce_or_subnet_makes_no_rail(card: Nic) -> None:
    assert rails_of(machine(2, card)) == ()


def test_gpus_without_a_function_of_their_own_are_not_handed_out() -> None:
    (few,) = rails_of(machine(3, nic(1, "10.1.0.0/24", vfs=2)))
    assert [device.id for device in few.devices] == ["gpu0/vf1.0", "gpu1/vf1.1"]
    assert len(few.gpus) == 3
    (none,) = rails_of(machine(2, nic(1, "10.1.0.0/24")))
    assert none.devices == ()  # two GPUs, one card: which of the two would it be?
    (alone,) = rails_of(machine(1, nic(1, "10.1.0.0/24")))
    assert [device.id for device in alone.devices] == ["gpu0/mlx5_1"]


def test_between_numa_nodes_their_distance_decides() -> None:
    nodes = tuple(
        NumaNode(n, (n,), 1, dict(enumerate(row))) for n, row in enumerate([(10, 12, 32), (12, 10, 32), (32, 32, 10)])
    )
    gpu = Gpu(0, "0000:80:00.0", ("p0", "g"), 0)
    cards = [replace(nic(n, f"10.{n}.0.0/24", node=n), path=(f"p{n}", "c")) for n in (2, 1)]
    made = Machine((gpu,), tuple(cards), nodes, ())
    assert [rail.subnet for rail in rails_of(made) if rail.gpus] == ["10.1.0.0/24"]


def test_a_number_is_the_subnets_and_the_clusters_if_there_is_one() -> None:
    made = machine(2, nic(1, "10.9.0.0/24"), nic(2, "10.10.0.0/24"))
    assert [(rail.number, rail.subnet) for rail in rails_of(made)] == [(1, "10.9.0.0/24"), (2, "10.10.0.0/24")]
    of_cluster = rails_of(made, numbers={"10.10.0.0/24": 7})
    assert [(rail.number, rail.resource) for rail in of_cluster] == [(7, "x.io/r7"), (None, "")]


@pytest.mark.parametrize(
    ("pattern", "good"),
    [
        ("inspur.com/gpu-roce{n}", True),
        ("example.com/rail-{n}-gpu", True),
        ("gpu-roce{n}", False),
        ("example.com/gpu", False),
        ("example.com/gpu {n}", False),
        ("kubernetes.io/gpu{n}", False),
        ("example.com/a/{n}", False),
    ],
)
def test_resource_names_are_checked(pattern: str, good: bool) -> None:
    if good:
        check_resource(pattern)
    else:
        with pytest.raises(UsageError, match="rail's number"):
            check_resource(pattern)


def test_a_gpu_that_drops_out_moves_no_other_and_comes_back_to_its_place() -> None:
    whole, bound = find_topology(load_recording(MACHINES / "roce-2socket"))
    less, then = find_topology(without("roce-2socket", GPU2), bound=bound)
    assert [gpu.index for gpu in less.machine.gpus] == [0, 1, 3, 4, 5, 6, 7]
    assert ids(less.rails)["dsagent.io/gpu-roce1"] == ["gpu0/mlx5_4", "gpu1/mlx5_5", "gpu3/mlx5_7"]
    assert then == bound
    again, _ = find_topology(load_recording(MACHINES / "roce-2socket"), bound=then)
    assert ids(again.rails) == ids(whole.rails)


def test_a_card_that_drops_out_takes_its_devices_and_nobody_elses() -> None:
    whole, bound = find_topology(load_recording(MACHINES / "roce-2socket"))
    less, _ = find_topology(without("roce-2socket", "0000:9e"), bound=bound)
    assert ids(less.rails) == {"dsagent.io/gpu-roce1": ids(whole.rails)["dsagent.io/gpu-roce1"]}
    new, _ = find_topology(without("roce-2socket", GPU0))
    assert ids(new.rails)["dsagent.io/gpu-roce1"][0] == "gpu0/mlx5_4"  # nothing is bound: the next GPU is the first


def test_a_new_gpu_gets_a_function_that_nobody_ever_had() -> None:
    card = nic(1, "10.1.0.0/24", vfs=3)
    found = machine(3, card)
    bound = NodeFile(pairs={found.gpus[2].pci: card.vfs[0].pci, "0000:ff:00.0": card.vfs[1].pci})
    assert ids(rails_of(found, bound)) == {"x.io/r1": ["gpu0/vf1.2", "gpu2/vf1.0"]}  # one is a GPU's that is away


def test_a_new_gpu_gets_an_index_that_nobody_ever_had() -> None:
    assert bind_indices({"0000:10:00.0": 7}, ["0000:05:00.0", "0000:02:00.0"]) == {
        "0000:10:00.0": 7,
        "0000:02:00.0": 8,
        "0000:05:00.0": 9,
    }


def test_a_rail_whose_link_goes_down_keeps_its_devices_for_the_health_check() -> None:
    made = machine(2, nic(1, "10.1.0.0/24", vfs=2))
    pairs = pair(near_gpus(made, all_links(made), {}), made.nics, {})
    down = replace(made, nics=(replace(made.nics[0], roce=False),))
    (rail,) = rails_of(down, NodeFile(pairs=pairs))
    assert [(device.id, device.nic.roce) for device in rail.devices] == [("gpu0/vf1.0", False), ("gpu1/vf1.1", False)]


addresses = st.lists(st.integers(0, 30).map(lambda n: f"0000:{n:02x}:00.0"), unique=True)


@given(st.lists(addresses, max_size=6))
def test_an_index_is_never_another_gpus(boots: list[list[str]]) -> None:
    known: Mapping[str, int] = {}
    for present in boots:
        after = bind_indices(known, present)
        assert {**after, **known} == after
        assert len(set(after.values())) == len(after)
        assert set(after) == {*known, *present}
        known = after


@given(st.lists(st.lists(st.integers(0, 9).map(lambda n: f"10.{n}.0.0/16"), max_size=4), max_size=6))
def test_a_rail_number_is_never_used_again(boots: list[list[str]]) -> None:
    known: Mapping[str, int] = {}
    for subnets in boots:
        after = number_subnets(known, subnets)
        assert {**after, **known} == after
        assert sorted(after.values()) == list(range(1, len(after) + 1))
        known = after


def test_links_of_a_pair_are_of_its_gpu() -> None:
    made = machine(1, nic(1, "10.1.0.0/24", vfs=1))
    assert all_links(made) == {"gpu0": {"mlx5_1": Link(Relation.PIX), "vf1.0": Link(Relation.PIX)}}
