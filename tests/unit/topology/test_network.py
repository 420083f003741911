"""Which functions speak RoCE, and which subnets interfaces are in."""

import copy
import struct
from dataclasses import replace
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Any

import pytest

from gpu_topology.discover import find_topology
from gpu_topology.network import live_subnets, read_port
from gpu_topology.recording import load_recording
from gpu_topology.sysfs import Recorded
from tests.machines.build import MACHINES
from tests.machines.trees import tree_of

CARD = "devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:04.0/0000:1d:00.0"
PORT = f"{CARD}/infiniband/mlx5_0/ports/1"


def changed(path: str, value: object) -> Recorded:
    tree: Any = copy.deepcopy(tree_of("roce-2socket"))
    *folders, name = path.split("/")
    here = tree
    for folder in folders:
        here = here.setdefault(folder, {})
    here[name] = value
    return Recorded(tree)


def test_a_card_with_roce_v2_that_is_up_speaks_roce() -> None:
    port = read_port(Recorded(tree_of("roce-2socket")), CARD)
    assert (port.rdma, port.netdev, port.interfaces, port.roce) == ("mlx5_0", "ens1f0", ("ens1f0",), True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{PORT}/link_layer", "InfiniBand"),
        (f"{PORT}/state", "1: DOWN"),
        (f"{PORT}/gid_attrs/types", {"0": "IB/RoCE v1"}),  # iWARP says so, too
        (f"{PORT}/gid_attrs", {}),
        (f"{CARD}/infiniband", {}),
    ],
)
def test_a_card_that_lacks_any_of_it_does_not(path: str, value: object) -> None:
    sysfs = changed(path, value)
    assert not read_port(sysfs, CARD).roce
    found, _ = find_topology(replace(load_recording(MACHINES / "roce-2socket"), sysfs=sysfs))
    assert [rail.subnet for rail in found.rails] == ["10.1.2.0/24"]


def test_the_address_of_a_bond_is_its_cards() -> None:
    sysfs = changed(f"{CARD}/net/ens1f0/master", "-> ../../../../../../../virtual/net/bond0")
    assert read_port(sysfs, CARD).interfaces == ("ens1f0", "bond0")
    sysfs = changed(f"{PORT}/gid_attrs/ndevs", {"10": "vlan7", "2": "bond0", "0": "ens1f0"})
    assert read_port(sysfs, CARD).interfaces == ("ens1f0", "bond0", "vlan7")


def test_a_card_without_an_address_has_no_subnet_and_makes_no_rail() -> None:
    found, _ = find_topology(replace(load_recording(MACHINES / "roce-2socket"), subnets={"ens1f0": ("10.1.1.0/24",)}))
    assert [rail.subnet for rail in found.rails] == ["10.1.1.0/24"]
    assert len(found.rails[0].gpus) == 8  # all belong to the only rail there is; four have no function of their own
    assert len(found.rails[0].devices) == 4


def test_subnets_of_this_machine_are_those_of_its_routes() -> None:
    """The kernel makes a route for the subnet of each address that it is given."""
    routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    direct = {
        (words[0], str(ip_network((address(words[1]), address(words[7]).packed.hex().count("f") * 4))))
        for words in routes
        if words[2] == "00000000" and words[7] in ("00FFFFFF", "0000FFFF", "000000FF")
    }
    found = {(name, subnet) for name, subnets in live_subnets().items() for subnet in subnets}
    assert direct <= found
    assert "lo" not in live_subnets()


def address(text: str) -> IPv4Address:
    return IPv4Address(struct.pack("<I", int(text, 16)))
