"""What a network function offers: its RDMA device, its interface, whether it speaks RoCE, its subnet."""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from socket import AF_INET, AF_INET6, inet_ntop

from gpu_topology.sysfs import Sysfs, number

_ROCE = "RoCE v2"  # version 1 is not routed, and iWARP names its GIDs as version 1 does
_PORT = "ports/1"


@dataclass(frozen=True)
class Port:
    """The first port of a network function."""

    rdma: str  # its RDMA device, as mlx5_0
    netdev: str
    interfaces: tuple[str, ...]  # those that may carry its address: its own, those of its GIDs, the bond above it
    roce: bool


def read_port(sysfs: Sysfs, folder: str) -> Port:
    """What the function at `folder` offers."""
    rdma = next(iter(sysfs.names(f"{folder}/infiniband")), "")
    netdevs = _netdevs(sysfs, folder)
    gids = f"{folder}/infiniband/{rdma}/{_PORT}/gid_attrs"
    behind = [sysfs.text(f"{gids}/ndevs/{index}") for index in _by_number(sysfs.names(f"{gids}/ndevs"))] if rdma else []
    masters = [(sysfs.target(f"{folder}/net/{name}/master") or "").rpartition("/")[2] for name in netdevs]
    interfaces = dict.fromkeys(name for name in (*netdevs, *behind, *masters) if name)
    return Port(rdma, next(iter(netdevs), ""), tuple(interfaces), bool(rdma) and _is_roce(sysfs, folder, rdma))


def _netdevs(sysfs: Sysfs, folder: str) -> list[str]:
    """The function's interfaces; those of virtio hang one level deeper."""
    return sysfs.names(f"{folder}/net") or [
        name for below in sysfs.names(folder, "virtio") for name in sysfs.names(f"{folder}/{below}/net")
    ]


def _is_roce(sysfs: Sysfs, folder: str, rdma: str) -> bool:
    """Whether the port is Ethernet, up, and has a GID of RoCE v2."""
    port = f"{folder}/infiniband/{rdma}/{_PORT}"
    if sysfs.text(f"{port}/link_layer") != "Ethernet" or "ACTIVE" not in (sysfs.text(f"{port}/state") or ""):
        return False
    types = f"{port}/gid_attrs/types"
    return any(sysfs.text(f"{types}/{index}") == _ROCE for index in _by_number(sysfs.names(types)))


def _by_number(names: list[str]) -> list[str]:
    return sorted(names, key=number)


class _Address(ctypes.Structure):
    """struct ifaddrs of getifaddrs(3)."""


_Address._fields_ = [
    ("next", ctypes.POINTER(_Address)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("mask", ctypes.c_void_p),
]


def live_subnets() -> dict[str, tuple[str, ...]]:
    """The subnets of this machine's interfaces, IPv4 first; without those of loopback and link-local addresses."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = ctypes.POINTER(_Address)()
    if libc.getifaddrs(ctypes.byref(head)) != 0:
        return {}
    found: dict[str, set[IPv4Network | IPv6Network]] = {}
    try:
        entry = head
        while entry:  # type: ignore[truthy-bool] # a null pointer is false
            subnet = _subnet(entry.contents)
            if subnet is not None:
                found.setdefault(os.fsdecode(entry.contents.name), set()).add(subnet)
            entry = entry.contents.next
    finally:
        libc.freeifaddrs(head)
    return {name: tuple(map(str, sorted(subnets, key=subnet_order))) for name, subnets in found.items()}


def _subnet(entry: _Address) -> IPv4Network | IPv6Network | None:
    if not entry.address or not entry.mask:
        return None
    family = ctypes.c_ushort.from_address(entry.address).value
    if family not in (AF_INET, AF_INET6):
        return None
    offset, length = (4, 4) if family == AF_INET else (8, 16)  # of the address in struct sockaddr_in and sockaddr_in6
    address = ip_address(inet_ntop(family, ctypes.string_at(entry.address + offset, length)))
    mask = int.from_bytes(ctypes.string_at(entry.mask + offset, length))
    if address.is_loopback or address.is_link_local:
        return None
    return ip_network((address, mask.bit_count()), strict=False)


def subnet_order(subnet: IPv4Network | IPv6Network) -> tuple[int, int, int]:
    """IPv4 before IPv6, then by address: the order in which rails get their numbers."""
    return (subnet.version, int(subnet.network_address), subnet.prefixlen)


def parse_subnets(recorded: object) -> Mapping[str, tuple[str, ...]]:
    """Subnets by interface as a recording has them; what is none is left out."""
    if not isinstance(recorded, Mapping):
        return {}
    return {
        str(name): tuple(str(ip_network(text, strict=False)) for text in texts if _is_network(text))
        for name, texts in recorded.items()
        if isinstance(texts, list)
    }


def _is_network(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(ip_network(text, strict=False))
    except ValueError:
        return False
