"""The machines that are rebuilt from what was published of them. README.md names the sources."""

from collections.abc import Mapping, Sequence

from tests.machines.build import Bridge, Built, Card, Gpu, Host, Node

INFINIBAND = None  # as `roce` of a card


def switch(port: str, up: str, below: Sequence[Bridge | Gpu | tuple[Card, ...]], first: int = 0) -> Bridge:
    """A switch behind a port: its upstream port at up:00.0, and one downstream port for each thing below it."""
    bus = int(up[-2:], 16) + 1
    ports = []
    for place, thing in enumerate(below, first):
        behind = thing if isinstance(thing, tuple) else (thing,)
        ports.append(Bridge(f"{up[:-2]}{bus:02x}:{place:02x}.0", behind))
    return Bridge(port, (Bridge(f"{up}:00.0", tuple(ports)),))


def vfs(bus: str, first: int, count: int, netdev: str) -> tuple[Card, ...]:
    """Virtual functions of a card at bus:00.0: mlx5_<first>, mlx5_<first + 1>, …"""
    return tuple(
        Card(f"{bus}:00.{place + 2}", f"mlx5_{first + place}", f"{netdev}v{place}", max_vfs=0, device=0x101E)
        for place in range(count)
    )


def _patent_half(root: str, up: str, gpus: Sequence[str], card: tuple[Card, Card]) -> tuple[Bridge, ...]:
    things = [Gpu(f"0000:{gpu}:00.0", 0x20F1, "NVIDIA A100-PCIE-40GB") for gpu in gpus]
    return (switch(f"0000:{root}:01.0", f"0000:{up}", [*things, card]),)


ROCE_TWO_SOCKETS = Built(
    "roce-2socket",
    "made up: two sockets, 8 GPUs, 2 RoCE cards of two ports with one port in use, 4 virtual functions each",
    (Node(0, 0, "0-31,64-95", 256), Node(1, 1, "32-63,96-127", 256)),
    (
        Host(
            "pci0000:16",
            0,
            _patent_half(
                "16",
                "17",
                ("19", "1a", "1b", "1c"),
                (
                    Card("0000:1d:00.0", "mlx5_0", "ens1f0", subnet="10.1.1.0/24", vfs=vfs("0000:1d", 4, 4, "ens1f0")),
                    Card("0000:1d:00.1", "mlx5_1", "ens1f1", up=False),
                ),
            ),
        ),
        Host(
            "pci0000:97",
            1,
            _patent_half(
                "97",
                "98",
                ("9a", "9b", "9c", "9d"),
                (
                    Card("0000:9e:00.0", "mlx5_2", "ens2f0", subnet="10.1.2.0/24", vfs=vfs("0000:9e", 8, 4, "ens2f0")),
                    Card("0000:9e:00.1", "mlx5_3", "ens2f1", up=False),
                ),
            ),
        ),
    ),
)


def _dgx_a100_quarter(
    root: str, up: str, inner: Sequence[tuple[str, Sequence[str]]], cards: Sequence[tuple[str, str, str]]
) -> Bridge:
    """A switch, below which each GPU and each card is behind a switch of its own (partitions of one chip)."""
    things: list[Bridge] = []
    for bus, gpus in inner:
        ports = tuple(Bridge(f"0000:{bus}:{n:02x}.0", (_a100(gpu),)) for n, gpu in enumerate(gpus))
        things.append(Bridge(f"0000:{int(bus, 16) - 1:02x}:00.0", ports))
    for bus, card, rdma in cards:
        port = Bridge(f"0000:{int(bus, 16) + 1:02x}:00.0", (Card(f"0000:{card}:00.0", rdma, "", INFINIBAND),))
        things.append(Bridge(f"0000:{bus}:00.0", (port,)))
    return switch(f"0000:{root}:01.1", f"0000:{up}", things)


def _a100(bus: str) -> Gpu:
    return Gpu(f"0000:{bus}:00.0", 0x20B0, "NVIDIA A100-SXM4-40GB", switch_nvlinks=12)


def _storage(root: str, bus: str, first: int) -> Bridge:
    ports = (Card(f"0000:{bus}:00.{n}", f"mlx5_{first + n}", "", INFINIBAND) for n in range(2))
    return Bridge(f"0000:{root}:01.1", tuple(ports))


DGX_A100 = Built(
    "dgx-a100",
    "rebuilt from https://github.com/NVIDIA/nccl/issues/1505 (nvidia-smi topo -m and NCCL's topology of one machine)",
    tuple(Node(n, n // 4, f"{16 * n}-{16 * n + 15},{128 + 16 * n}-{143 + 16 * n}", 128) for n in range(8)),
    (
        Host(
            "pci0000:00",
            3,
            (
                _dgx_a100_quarter(
                    "00", "01", [("06", ["07"]), ("0e", ["0f"])], [("0a", "0c", "mlx5_0"), ("10", "12", "mlx5_1")]
                ),
            ),
        ),
        Host(
            "pci0000:40",
            1,
            (
                _dgx_a100_quarter(
                    "40", "41", [("46", ["47"]), ("4d", ["4e"])], [("49", "4b", "mlx5_2"), ("52", "54", "mlx5_3")]
                ),
            ),
        ),
        Host("pci0000:60", 0, (_storage("60", "61", 4),)),
        Host(
            "pci0000:80",
            7,
            (
                _dgx_a100_quarter(
                    "80", "81", [("86", ["87"]), ("8f", ["90"])], [("8b", "8d", "mlx5_6"), ("92", "94", "mlx5_7")]
                ),
            ),
        ),
        Host(
            "pci0000:b0",
            5,
            (
                _dgx_a100_quarter(
                    "b0", "b1", [("b6", ["b7"]), ("bc", ["bd"])], [("b8", "ba", "mlx5_8"), ("ca", "cc", "mlx5_9")]
                ),
            ),
        ),
        Host("pci0000:e0", 4, (_storage("e0", "e1", 10),)),
    ),
    tuple(tuple(10 if a == b else 12 if a // 4 == b // 4 else 32 for b in range(8)) for a in range(8)),
)


def _h100_pair(host: str, node: int, up: str, card: str, gpu: str, number: int) -> Host:
    """A host bridge with one switch, and behind that a GPU and its card."""
    port = Card(f"0000:{card}:00.0", f"mlx5_{number}", f"rail{number}", subnet=f"10.2.{number}.0/24", device=0x1021)
    h100 = Gpu(f"0000:{gpu}:00.0", 0x2330, "NVIDIA H100 80GB HBM3", switch_nvlinks=18)
    return Host(f"pci0000:{host}", node, (switch(f"0000:{host}:01.0", f"0000:{up}", [(port,), h100]),))


HGX_H100 = Built(
    "hgx-h100",
    "rebuilt from https://github.com/NVIDIA/nccl/issues/1264 (matrix, CPUs) and https://github.com/aliyun/SimAI/issues/128"
    " (a switch for each GPU and its card); addresses in part and subnets made up, cards as Ethernet",
    (Node(0, 0, "0-55,112-167", 1024), Node(1, 1, "56-111,168-223", 1024)),
    tuple(
        _h100_pair(host, node, up, card, gpu, number)
        for number, (host, node, up, card, gpu) in enumerate(
            [
                ("15", 0, "16", "18", "19"),
                ("37", 0, "38", "3a", "3b"),
                ("48", 0, "49", "4b", "4c"),
                ("59", 0, "5a", "5c", "5d"),
                ("97", 1, "98", "9a", "9b"),
                ("b4", 1, "b5", "b7", "b8"),
                ("c7", 1, "c8", "ca", "cb"),
                ("d6", 1, "d7", "da", "d9"),
            ]
        )
    ),
)

CUBE_MESH: Mapping[str, Mapping[str, int]] = {
    "06": {"07": 1, "0a": 1, "0b": 2, "85": 2},
    "07": {"06": 1, "0a": 2, "0b": 1, "86": 2},
    "0a": {"06": 1, "07": 2, "0b": 2, "89": 1},
    "0b": {"06": 2, "07": 1, "0a": 2, "8a": 1},
    "85": {"86": 1, "89": 1, "8a": 2, "06": 2},
    "86": {"85": 1, "89": 2, "8a": 1, "07": 2},
    "89": {"85": 1, "86": 2, "8a": 2, "0a": 1},
    "8a": {"85": 2, "86": 1, "89": 2, "0b": 1},
}


def _v100(bus: str) -> Gpu:
    links = {f"0000:{peer}:00.0": count for peer, count in CUBE_MESH[bus].items()}
    return Gpu(f"0000:{bus}:00.0", 0x1DB5, "Tesla V100-SXM2-32GB", nvlinks=links)


def _infiniband(bus: str, number: int) -> tuple[Card, ...]:
    return (Card(f"0000:{bus}:00.0", f"mlx5_{number}", f"ib{number}", INFINIBAND, device=0x1013),)


DGX_1 = Built(
    "dgx-1-v100",
    "rebuilt from https://github.com/NVIDIA/nccl/issues/671 (NCCL's topology of GPUs 0-3; the rest is its mirror)",
    (Node(0, 0, "0-19,40-59", 256), Node(1, 1, "20-39,60-79", 256)),
    (
        Host(
            "pci0000:00",
            0,
            (
                switch("0000:00:02.0", "0000:03", [_infiniband("05", 0), _v100("06"), _v100("07")]),
                switch("0000:00:03.0", "0000:08", [_v100("0a"), _v100("0b"), _infiniband("0c", 1)]),
            ),
        ),
        Host(
            "pci0000:80",
            1,
            (
                switch("0000:80:02.0", "0000:82", [_infiniband("84", 2), _v100("85"), _v100("86")]),
                switch("0000:80:03.0", "0000:87", [_v100("89"), _v100("8a"), _infiniband("8b", 3)]),
            ),
        ),
    ),
)


def _dgx_2_half(root: str, up: str, near: Sequence[tuple[str, Sequence[str], str, int]]) -> Bridge:
    """A switch with two more below it, each with two GPUs and a card."""
    inner = []
    for bus, gpus, card, number in near:
        things: list[Gpu | tuple[Card, ...]] = [
            Gpu(f"0000:{gpu}:00.0", 0x1DB8, "Tesla V100-SXM3-32GB", switch_nvlinks=6) for gpu in gpus
        ]
        inner.append(switch("", f"0000:{bus}", [*things, _infiniband(card, number)]).below[0])
    return switch(f"0000:{root}:00.0", f"0000:{up}", [bridge for bridge in inner if not isinstance(bridge, Card)])


DGX_2 = Built(
    "dgx-2",
    "rebuilt from https://github.com/NVIDIA/nccl-tests/issues/78 (nvidia-smi topo -m of 16 GPUs); bridges made up",
    (Node(0, 0, "0-23,48-71", 768), Node(1, 1, "24-47,72-95", 768)),
    (
        Host(
            "pci0000:2e",
            0,
            (_dgx_2_half("2e", "2f", [("32", ("34", "36"), "35", 0), ("37", ("39", "3b"), "3a", 1)]),),
        ),
        Host(
            "pci0000:51",
            0,
            (_dgx_2_half("51", "52", [("55", ("57", "59"), "58", 2), ("5a", ("5c", "5e"), "5d", 3)]),),
        ),
        Host(
            "pci0000:85",
            1,
            (Bridge("0000:85:00.0", (*_infiniband("86", 4),)), Bridge("0000:85:02.0", (*_infiniband("87", 5),))),
        ),
        Host(
            "pci0000:ae",
            1,
            (_dgx_2_half("ae", "af", [("b5", ("b7", "b9"), "b8", 6), ("ba", ("bc", "be"), "bd", 7)]),),
        ),
        Host(
            "pci0000:d7",
            1,
            (_dgx_2_half("d7", "d8", [("de", ("e0", "e2"), "e1", 8), ("e3", ("e5", "e7"), "e6", 9)]),),
        ),
    ),
)


def _hyper_v(domain: str, device: Gpu | Card) -> Host:
    """What a virtual machine of Hyper-V sees of a device that is passed to it: a bus of its own, nothing above."""
    return Host(f"pci{domain}:00", -1, (device,), "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00")


AZURE_NDV4 = Built(
    "azure-ndv4",
    "rebuilt from Azure's topology file for NCCL, topology/ndv4-topo.xml of https://github.com/Azure/azhpc-images;"
    " overrides.yaml says the same of what the virtual machine hides",
    tuple(Node(n, n // 2, f"{24 * n}-{24 * n + 23}", 220, threads=1) for n in range(4)),
    (
        *(
            _hyper_v(domain, Gpu(f"{domain}:00:00.0", 0x20B0, "NVIDIA A100-SXM4-40GB", switch_nvlinks=12))
            for domain in ("0001", "0002", "0003", "0004", "000b", "000c", "000d", "000e")
        ),
        *(
            _hyper_v(f"01{n + 1:02x}", Card(f"01{n + 1:02x}:00:00.0", f"mlx5_{n}", f"ib{n}", INFINIBAND, max_vfs=0))
            for n in range(8)
        ),
    ),
)


def _grace_port(domain: str, node: int, device: Gpu | Card) -> Host:
    return Host(f"pci{domain}:00", node, (Bridge(f"{domain}:00:00.0", (device,)),))


GB200 = Built(
    "gb200",
    "rebuilt from https://github.com/sgl-project/sglang/issues/11208 (NUMA nodes, NVLinks) and"
    " https://github.com/netbox-community/devicetype-library/pull/4508 (where a GB300's cards are); subnets made up",
    (
        Node(0, 0, "0-71", 480, threads=1),
        Node(1, 1, "72-143", 480, threads=1),
        *(Node(n, n // 18, "", 184 if n in (2, 10, 18, 26) else 0, threads=1) for n in range(2, 34)),
    ),
    (
        *(
            _grace_port(
                domain, node, Card(f"{domain}:03:00.0", f"mlx5_{n}", name, subnet=f"10.3.{n}.0/24", device=0x1021)
            )
            for n, (domain, node, name) in enumerate(
                [("0000", 0, "enp3s0"), ("0002", 0, "enP2p3s0"), ("0010", 1, "enP16p3s0"), ("0012", 1, "enP18p3s0")]
            )
        ),
        *(
            _grace_port(domain, node, Gpu(f"{domain}:01:00.0", 0x2941, "NVIDIA GB200", switch_nvlinks=18))
            for domain, node in [("0008", 0), ("0009", 0), ("0018", 1), ("0019", 1)]
        ),
    ),
)

PAPER = Built(
    "paper-4gpu",
    "made up: four GPUs at one switch, an NVLink bridge between GPU 0 and GPU 3, and none at GPU 1",
    (Node(0, 0, "0-15", 128),),
    (
        Host(
            "pci0000:3a",
            0,
            (
                switch(
                    "0000:3a:00.0",
                    "0000:3b",
                    [
                        Gpu("0000:3d:00.0", 0x20F1, "NVIDIA A100-PCIE-40GB", nvlinks={"0000:40:00.0": 4}),
                        Gpu("0000:3e:00.0", 0x20F1, "NVIDIA A100-PCIE-40GB"),
                        Gpu("0000:3f:00.0", 0x20F1, "NVIDIA A100-PCIE-40GB"),
                        Gpu("0000:40:00.0", 0x20F1, "NVIDIA A100-PCIE-40GB", nvlinks={"0000:3d:00.0": 4}),
                    ],
                ),
            ),
        ),
    ),
)

BUILT = (ROCE_TWO_SOCKETS, DGX_A100, HGX_H100, DGX_1, DGX_2, AZURE_NDV4, GB200, PAPER)
