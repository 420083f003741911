"""Any other devices of a node as resources, whole or in shares of their memory, as a file describes them.

resources:
  - name: example.com/npu          # a container asks for 2 of these
    variable: NPU_VISIBLE_DEVICES  # what it finds there: npu0,npu1
    devices:
      npu0: {paths: [/dev/davinci0, /dev/davinci_manager], numa_node: 0}
  - name: example.com/npu-memory   # or for 8: that many GB
    unit: GB
    variable: NPU_SHARES           # npu0=8
    devices:
      npu2: {paths: [/dev/davinci2], memory: 32}
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_topology.api import UNKNOWN_NODE
from gpu_topology.device_plugin.resource import Grant, Offer, first_ones
from gpu_topology.errors import BadFile, TopologyError
from gpu_topology.rails import is_resource

_MOST_GB = 1024  # of one device: each is a device to kubelet


@dataclass(frozen=True)
class Whole:
    """A device of the file. `memory` is in GB, 0 if it is handed out whole."""

    id: str
    paths: tuple[str, ...]
    memory: int = 0
    numa_node: int = UNKNOWN_NODE

    @property
    def parts(self) -> tuple[str, ...]:
        """What kubelet counts: itself, or its GBs."""
        return tuple(f"{self.id}-{place}" for place in range(self.memory)) or (self.id,)


@dataclass(frozen=True)
class Shared:
    """One resource of the file at one look."""

    name: str
    variable: str
    devices: tuple[Whole, ...]
    present: frozenset[str] = frozenset()  # the ids of devices whose paths are all there

    @property
    def offers(self) -> tuple[Offer, ...]:
        return tuple(
            Offer(part, device.id in self.present, device.numa_node) for device in self.devices for part in device.parts
        )

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """From as few devices as possible: those in use already, then the fullest that still has enough."""
        of = self._of
        free = Counter(of[part].id for part in available if part in of)
        wanted = Counter(of[part].id for part in required if part in of)
        missing = size - len(required)

        def key(part: str) -> tuple[bool, bool, int, str]:
            device = of[part].id
            left = free[device] - wanted[device]
            enough = left >= missing
            return device not in wanted, not enough, left if enough else -left, device

        return first_ones(sorted((part for part in available if part in of), key=key), required, size)

    def grant(self, ids: Sequence[str]) -> Grant:
        of = self._of
        lost = [one for one in ids if one not in of or of[one].id not in self.present]
        if lost or not ids:
            cause = f"not there: {', '.join(lost)}" if lost else "no device was named"
            raise TopologyError("hand out", f"{', '.join(ids)} of {self.name}", cause)
        amounts = Counter(of[one].id for one in ids)
        paths = dict.fromkeys(path for device in self.devices if device.id in amounts for path in device.paths)
        said = [f"{one}={amount}" if of[ids[0]].memory else one for one, amount in sorted(amounts.items())]
        return Grant(variables={self.variable: ",".join(said)}, nodes=tuple(paths))

    @property
    def _of(self) -> Mapping[str, Whole]:
        return {part: device for device in self.devices for part in device.parts}


class Shares:
    """The backend: the resources of a file; a device is there if all its paths are."""

    def __init__(self, path: Path) -> None:
        """Raises BadFile."""
        self._resources = load_shares(path)

    def look(self) -> Sequence[Shared]:
        return [
            Shared(
                one.name, one.variable, one.devices, frozenset(device.id for device in one.devices if _is_there(device))
            )
            for one in self._resources
        ]


def _is_there(device: Whole) -> bool:
    return all(os.path.exists(path) for path in device.paths)


def load_shares(path: Path) -> tuple[Shared, ...]:
    """Reads the file. Raises BadFile."""
    import yaml  # noqa: PLC0415 - slow to import, and seldom asked for

    try:
        read = yaml.safe_load(path.read_bytes())
        resources = tuple(_resource(one) for one in _fields(read, "the file", {"resources": list})["resources"])
        _check_once("resource", [resource.name for resource in resources])
    except (OSError, yaml.YAMLError, ValueError) as error:
        hint = "docs/guides/gpu-topology.md shows its form"
        raise BadFile("read the devices", str(path), " ".join(str(error).split()), hint) from error
    return resources


def _resource(read: object) -> Shared:
    """Raises ValueError."""
    fields = _fields(read, "a resource", {"name": str, "variable": str, "devices": dict}, {"unit": str})
    name, unit = fields["name"], fields.get("unit", "whole")
    if not is_resource(name):
        raise ValueError(f"{name!r} is not the name of a resource, such as example.com/npu")
    if unit not in ("whole", "GB"):
        raise ValueError(f"{name}: unit is whole or GB, not {unit!r}")
    devices = tuple(_device(name, str(own), one, in_shares=unit == "GB") for own, one in fields["devices"].items())
    _check_once(f"{name}: device", [part for device in devices for part in device.parts])
    return Shared(name, fields["variable"], devices)


def _device(resource: str, own: str, read: object, *, in_shares: bool) -> Whole:
    """Raises ValueError."""
    what = f"{resource}: {own}"
    needed = {"paths": list} | ({"memory": int} if in_shares else {})
    fields = _fields(read, what, needed, {"numa_node": int})
    paths, memory = fields["paths"], fields.get("memory", 0)
    if not paths or not all(isinstance(path, str) and path.startswith("/") for path in paths):
        raise ValueError(f"{what}: paths has to be a list of absolute paths")
    if in_shares and not 1 <= memory <= _MOST_GB:
        raise ValueError(f"{what}: memory is a whole number of GB, from 1 to {_MOST_GB}")
    if len(own) > 58:
        raise ValueError(f"{what}: an id has at most 58 characters")  # kubelet takes 63, with the number of the GB
    return Whole(own, tuple(paths), memory, fields.get("numa_node", UNKNOWN_NODE))


def _fields(
    read: object, what: str, needed: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> Mapping[str, Any]:
    """The fields of an object that has these and no others. Raises ValueError."""
    known = {**needed, **(optional or {})}
    if not isinstance(read, dict) or set(read) - set(known) or set(needed) - set(read):
        names = ", ".join(needed) + "".join(f", [{name}]" for name in optional or {})
        raise ValueError(f"{what} has to hold {names}, and nothing else")
    for name, value in read.items():
        if type(value) is not known[name]:
            raise ValueError(f"{what}: {name} cannot be {value!r}")
    return read


def _check_once(what: str, names: Sequence[str]) -> None:
    """Raises ValueError."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{what} {twice[0]} is named twice")
