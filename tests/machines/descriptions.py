"""The machines that are rebuilt from what was published of them. README.md names the sources."""

from tests.machines.build import Bridge, Built, Card, Gpu, Host, Node


def _vfs(bus: str, first: int, count: int, netdev: str) -> tuple[Card, ...]:
    """Virtual functions of a card at bus:00.0: mlx5_<first>, mlx5_<first + 1>, …"""
    return tuple(
        Card(f"{bus}:00.{place + 2}", f"mlx5_{first + place}", f"{netdev}v{place}", max_vfs=0, device=0x101E)
        for place in range(count)
    )


def _roce_node(root: str, bus: str, gpus: tuple[str, ...], card: tuple[Card, Card]) -> tuple[Bridge, ...]:
    """A root port with a switch, and behind it GPUs and both ports of a card."""
    number = int(bus, 16)
    return (
        Bridge(
            f"0000:{root}:01.0",
            (
                Bridge(
                    f"0000:{bus}:00.0",
                    (
                        *(
                            Bridge(f"0000:{number + 1:02x}:{place:02x}.0", (Gpu(gpu, 0x20F1, "NVIDIA A100-PCIE-40GB"),))
                            for place, gpu in enumerate(gpus)
                        ),
                        Bridge(f"0000:{number + 1:02x}:10.0", card),
                    ),
                ),
            ),
        ),
    )


ROCE_TWO_SOCKETS = Built(
    "roce-2socket",
    "made up: two sockets, 8 GPUs, 2 RoCE cards of two ports with one port in use, 4 virtual functions each",
    (Node(0, 0, "0-31,64-95", 256), Node(1, 1, "32-63,96-127", 256)),
    (
        Host(
            "pci0000:16",
            0,
            _roce_node(
                "16",
                "17",
                ("0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"),
                (
                    Card("0000:1d:00.0", "mlx5_0", "ens1f0", subnet="10.1.1.0/24", vfs=_vfs("0000:1d", 4, 4, "ens1f0")),
                    Card("0000:1d:00.1", "mlx5_1", "ens1f1", up=False),
                ),
            ),
        ),
        Host(
            "pci0000:97",
            1,
            _roce_node(
                "97",
                "98",
                ("0000:9a:00.0", "0000:9b:00.0", "0000:9c:00.0", "0000:9d:00.0"),
                (
                    Card("0000:9e:00.0", "mlx5_2", "ens2f0", subnet="10.1.2.0/24", vfs=_vfs("0000:9e", 8, 4, "ens2f0")),
                    Card("0000:9e:00.1", "mlx5_3", "ens2f1", up=False),
                ),
            ),
        ),
    ),
)

BUILT = (ROCE_TWO_SOCKETS,)
