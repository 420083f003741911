"""GPUs and network cards of the PCI bus as sysfs shows them, before anybody has given them numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_topology.api import Nic, Vf
from gpu_topology.network import read_port
from gpu_topology.sysfs import Sysfs, number

_DEVICES = "bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)
_NVIDIA = 0x10DE
_GPU_CLASSES = (0x0300, 0x0302)
_NETWORK_CLASSES = (0x0200, 0x0207)
_MOST_VFS = 65_535


@dataclass(frozen=True)
class PciFunction:
    """A function of a PCI device; `folder` is where sysfs has it, `path` its way from the host bridge."""

    pci: str
    folder: str
    path: tuple[str, ...]
    numa_node: int


@dataclass(frozen=True)
class Found:
    """What the bus has: GPUs and network cards, each by PCI address."""

    gpus: tuple[PciFunction, ...]
    nics: tuple[Nic, ...]


def read_devices(sysfs: Sysfs, subnets: Mapping[str, tuple[str, ...]]) -> Found:
    """All GPUs and network cards; `subnets` has those of each network interface."""
    gpus: list[PciFunction] = []
    network: dict[str, PciFunction] = {}
    for pci in sysfs.names(_DEVICES):
        folder = sysfs.target(f"{_DEVICES}/{pci}") if _ADDRESS.fullmatch(pci) else None
        if folder is None:
            continue
        kind = number(sysfs.text(f"{folder}/class")) >> 8
        if kind in _GPU_CLASSES and number(sysfs.text(f"{folder}/vendor")) == _NVIDIA:
            gpus.append(_function(sysfs, pci, folder))
        elif kind in _NETWORK_CLASSES:
            network[pci] = _function(sysfs, pci, folder)
    return Found(tuple(gpus), _nics(sysfs, network, subnets))


def is_address(text: str) -> bool:
    """Whether this is a PCI address as sysfs writes it: 0000:3b:00.0."""
    return _ADDRESS.fullmatch(text) is not None


def _function(sysfs: Sysfs, pci: str, folder: str) -> PciFunction:
    path = tuple(part for part in folder.split("/") if _ADDRESS.fullmatch(part) or _HOST_BRIDGE.fullmatch(part))
    return PciFunction(pci, folder, path, max(-1, number(sysfs.text(f"{folder}/numa_node"))))


def _nics(sysfs: Sysfs, network: Mapping[str, PciFunction], subnets: Mapping[str, tuple[str, ...]]) -> tuple[Nic, ...]:
    """The physical functions with their virtual ones, and virtual ones that have no physical one here."""
    virtual: dict[str, list[PciFunction]] = {}
    for function in network.values():
        physical = (sysfs.target(f"{function.folder}/physfn") or "").rpartition("/")[2]
        if physical in network:
            virtual.setdefault(physical, []).append(function)
    owned = {vf.pci for vfs in virtual.values() for vf in vfs}
    return tuple(
        _nic(sysfs, function, virtual.get(pci, []), subnets) for pci, function in network.items() if pci not in owned
    )


def _nic(
    sysfs: Sysfs, function: PciFunction, virtual: list[PciFunction], subnets: Mapping[str, tuple[str, ...]]
) -> Nic:
    port = read_port(sysfs, function.folder)
    at = [subnet for interface in port.interfaces for subnet in subnets.get(interface, ())]
    most = number(sysfs.text(f"{function.folder}/sriov_totalvfs"), 0)
    return Nic(
        name=port.rdma or port.netdev or function.pci,
        pci=function.pci,
        path=function.path,
        numa_node=function.numa_node,
        netdev=port.netdev,
        roce=port.roce,
        subnet=at[0] if at else "",
        vfs=_vfs(sysfs, function, virtual),
        max_vfs=most if 0 < most <= _MOST_VFS else 0,
    )


def _vfs(sysfs: Sysfs, physical: PciFunction, virtual: list[PciFunction]) -> tuple[Vf, ...]:
    """The virtual functions in the order of their numbers, which the links virtfn0, virtfn1, … give."""
    index_of = {}
    for name in sysfs.names(physical.folder, "virtfn"):
        if re.fullmatch(r"virtfn\d{1,5}", name, re.ASCII):
            target = sysfs.target(f"{physical.folder}/{name}") or ""
            index_of[target.rpartition("/")[2]] = int(name[6:])
    found = []
    for place, function in enumerate(virtual):
        port = read_port(sysfs, function.folder)
        name = port.rdma or port.netdev or function.pci
        index = index_of.get(function.pci, place)
        found.append(Vf(index, name, function.pci, function.path, function.numa_node, port.netdev))
    return tuple(sorted(found, key=lambda vf: (vf.index, vf.pci)))
