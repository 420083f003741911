"""The classes of GPUs as resources: who is there, who is well, and what a container gets with its GPUs."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path

from gpu_topology.allocate import Policy, allocate
from gpu_topology.api import Device, Link, Nic, Topology, Vf
from gpu_topology.device_plugin.resource import Grant, Mount, Offer, first_ones
from gpu_topology.device_plugin.xid import recovered
from gpu_topology.discover import NO_OVERRIDES, find_topology
from gpu_topology.errors import NotPermitted, TopologyError
from gpu_topology.links import scores
from gpu_topology.node_file import NodeFile, load_node_file, save_node_file
from gpu_topology.overrides import Overrides
from gpu_topology.rails import DEFAULT_RESOURCE
from gpu_topology.recording import Inputs
from gpu_topology.sysfs import Sysfs, number

NCCL_CONF = "/etc/nccl.conf"
_PCI = "bus/pci/devices"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Terms:
    """How GPUs are handed out."""

    folder: Path  # of the plugin, at the same path on the node: its files are mounted from there
    policy: Policy = Policy.BEST_LINK
    cdi_kind: str = ""  # as dsagent.io/gpu; empty: no CDI names
    host_network: bool = False  # whether pods have the node's interfaces


@dataclass(frozen=True)
class GpuClass:
    """One class at one look."""

    name: str
    offers: tuple[Offer, ...]
    devices: Mapping[str, Device]  # by their ids, those that were ever seen
    links: Mapping[str, Mapping[str, Link]]
    indices: Mapping[str, int]  # place in PCI order, as drivers count, by PCI address
    sysfs: Sysfs
    terms: Terms

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        ids = {self.devices[one].gpu.id: one for one in available if one in self.devices}
        gpus = tuple(gpu for gpu in ids if gpu in self.links)
        wanted = [self.devices[one].gpu.id for one in required if one in self.devices]
        chosen = allocate(gpus, wanted, size, self.terms.policy, scores(self.links, gpus))
        complete = len(gpus) == len(available) and len(wanted) == len(required)
        return [ids[gpu] for gpu in chosen] if complete and chosen else first_ones(available, required, size)

    def grant(self, ids: Sequence[str]) -> Grant:
        healthy = {offer.id for offer in self.offers if offer.healthy}
        lost = [one for one in ids if one not in healthy]
        if lost or not ids:
            cause = f"not there or not well: {', '.join(lost)}" if lost else "no device was named"
            raise TopologyError("hand out", f"{', '.join(ids)} of {self.name}", cause)
        devices = [self.devices[one] for one in ids]
        function = self._nearest(devices)
        nccl = self._write_nccl_conf(function)
        nodes = _device_nodes(self.sysfs, function)
        if not nodes:
            _log.warning("%s (%s) has no device node: is the module ib_uverbs loaded?", function.name, function.pci)
        kind = self.terms.cdi_kind
        return Grant(
            variables={"NVIDIA_VISIBLE_DEVICES": ",".join(self._visible(devices))},
            mounts=(Mount(NCCL_CONF, str(nccl)),),
            nodes=nodes,
            annotations={"dsagent.io/devices": ",".join(ids), "dsagent.io/network-function": function.name},
            cdi=tuple(f"{kind}={one.replace('/', '-')}" for one in ids) if kind else (),
        )

    def _nearest(self, devices: Sequence[Device]) -> Nic | Vf:
        """Of the devices' network functions the one that all their GPUs together are nearest to."""
        functions = [device.function for device in devices]
        gpus = [device.gpu.id for device in devices]
        return max(functions, key=lambda function: sum(self.links[gpu][function.name].score for gpu in gpus))

    def _visible(self, devices: Sequence[Device]) -> list[str]:
        uuids = [device.gpu.uuid for device in devices]
        return uuids if all(uuids) else [str(self.indices[device.gpu.pci]) for device in devices]

    def _write_nccl_conf(self, function: Nic | Vf) -> Path:
        path = self.terms.folder / "nccl" / f"{function.name}.conf"
        text = "".join(f"{line}\n" for line in self._nccl_lines(function))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text() != text:
                beside = path.with_suffix(".new")
                beside.write_text(text)
                beside.replace(path)
        except OSError as error:
            hint = "name a folder by --folder that may be written to"
            raise NotPermitted("write", str(path), error.strerror or str(error), hint) from error
        return path

    def _nccl_lines(self, function: Nic | Vf) -> list[str]:
        """`=` before a name makes NCCL take it whole, and not as the beginning of names."""
        lines = [f"NCCL_IB_HCA=={function.name}"]
        if self.terms.host_network and function.netdev:
            lines.append(f"NCCL_SOCKET_IFNAME=={function.netdev}")
            gid = _gid_index(self.sysfs, function)
            lines += [] if gid is None else [f"NCCL_IB_GID_INDEX={gid}"]
        return lines


def _device_nodes(sysfs: Sysfs, function: Nic | Vf) -> tuple[str, ...]:
    """The device files by which a process reaches the function and no other."""
    folder = sysfs.target(f"{_PCI}/{function.pci}") or ""
    verbs = sysfs.names(f"{folder}/infiniband_verbs", "uverbs")
    connections = sysfs.names("class/misc", "rdma_cm") if verbs else []
    return tuple(f"/dev/infiniband/{name}" for name in (*verbs, *connections))


def _gid_index(sysfs: Sysfs, function: Nic | Vf) -> int | None:
    """The first GID of RoCE v2 that is of an IPv4 address, else the first that is not link-local."""
    port = f"{sysfs.target(f'{_PCI}/{function.pci}')}/infiniband/{function.name}/ports/1"
    other = None
    for index in sorted(map(number, sysfs.names(f"{port}/gid_attrs/types"))):
        if sysfs.text(f"{port}/gid_attrs/types/{index}") != "RoCE v2":
            continue
        try:
            gid = IPv6Address(sysfs.text(f"{port}/gids/{index}") or "")
        except ValueError:
            continue
        if gid.ipv4_mapped:
            return index
        if other is None and not gid.is_link_local:
            other = index
    return other


class Gpus:
    """The backend: looks at a machine, remembers what it has seen, and binds indices and ids in the node file."""

    def __init__(
        self,
        machine: Callable[[], Inputs],
        node_file: Path,
        terms: Terms,
        *,
        overrides: Overrides = NO_OVERRIDES,
        pattern: str = DEFAULT_RESOURCE,
        rival: Callable[[Topology, Collection[str]], str] = lambda _topology, _own: "",
    ) -> None:
        """`rival` says who else hands out a machine's devices, besides the resources that are our own."""
        self._machine = machine
        self._node_file = node_file
        self._terms = terms
        self._overrides = overrides
        self._pattern = pattern
        self._rival = rival
        self._bound = load_node_file(node_file)
        self._seen: dict[str, dict[str, Device]] = {}  # by resource and id
        self._served: set[str] = set()
        self.numbers: Mapping[str, int] | None = None  # of rails, the cluster's; None is no cluster
        self.topology: Topology | None = None  # as it was at the last look
        self.in_the_way = ""  # who else hands out its devices
        self.unwell: dict[str, str] = {}  # what the driver reported of a GPU, by its PCI address

    def look(self) -> Sequence[GpuClass]:
        inputs = self._machine()
        topology, bound = find_topology(inputs, self._overrides, self._bound, self.numbers, self._pattern)
        found = {rail.resource: rail.devices for rail in topology.rails if rail.resource}
        new = {device.gpu.pci: device.id for devices in found.values() for device in devices}
        self._bind(replace(bound, ids={**new, **bound.ids}))
        self._forget_recovered(topology)
        well = set()
        for resource, devices in found.items():
            for device in devices:
                one = self._bound.ids[device.gpu.pci]
                self._seen.setdefault(resource, {})[one] = device
                if device.nic.roce and device.gpu.pci not in self.unwell:
                    well.add(one)
        if self._has_rival(topology):
            well.clear()
        else:
            self._served.update(self._seen)
        self.topology = topology
        return [self._class(resource, topology, well, inputs.sysfs) for resource in sorted(self._served)]

    def _forget_recovered(self, topology: Topology) -> None:
        """A GPU is well again when the driver says that it needs no reset, or when it was taken out."""
        unwell = set(self.unwell)
        gone = unwell - {gpu.pci for gpu in topology.machine.gpus}
        for pci in gone | (recovered(unwell - gone) if unwell else set()):
            del self.unwell[pci]

    def _bind(self, bound: NodeFile) -> None:
        if bound != self._bound:
            save_node_file(self._node_file, bound)
            self._bound = bound

    def _has_rival(self, topology: Topology) -> bool:
        rival = self._rival(topology, self._seen)
        if rival != self.in_the_way:
            if rival:
                _log.error("GPUs are not served: %s", rival)
            else:
                _log.info("GPUs are served: nobody else hands them out any more")
        self.in_the_way = rival
        return bool(rival)

    def _class(self, resource: str, topology: Topology, well: Collection[str], sysfs: Sysfs) -> GpuClass:
        devices = dict(sorted(self._seen[resource].items(), key=lambda item: item[1].gpu.index))
        return GpuClass(
            name=resource,
            offers=tuple(Offer(one, one in well, device.gpu.numa_node) for one, device in devices.items()),
            devices=devices,
            links=topology.links,
            indices={pci: place for place, pci in enumerate(sorted(gpu.pci for gpu in topology.machine.gpus))},
            sysfs=sysfs,
            terms=self._terms,
        )
