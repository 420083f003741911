"""What a node must not forget, since kubelet's checkpoint names devices by it: indices, pairs, rail numbers, ids."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from gpu_topology.errors import BadFile, NotPermitted
from gpu_topology.network import subnet_order
from gpu_topology.pci import is_address


@dataclass(frozen=True)
class NodeFile:
    """Bindings that are only ever added to; one whose device is gone stays, so nothing else gets its place."""

    gpus: Mapping[str, int] = field(default_factory=dict)  # PCI address -> index
    pairs: Mapping[str, str] = field(default_factory=dict)  # a GPU's PCI address -> its network function's
    rails: Mapping[str, int] = field(default_factory=dict)  # subnet -> number, without a cluster
    ids: Mapping[str, str] = field(default_factory=dict)  # a GPU's PCI address -> the id that kubelet got of its device
    cluster_rails: Mapping[str, int] = field(default_factory=dict)  # subnet -> number, as the cluster gave it


def bind_indices(known: Mapping[str, int], present: Iterable[str]) -> Mapping[str, int]:
    """`known` with an index for each GPU that has none: the lowest that never was another's, in PCI order."""
    free = max(known.values(), default=-1) + 1
    new = sorted(pci for pci in present if pci not in known)
    return {**known, **{pci: free + place for place, pci in enumerate(new)}}


def number_subnets(known: Mapping[str, int], subnets: Iterable[str]) -> Mapping[str, int]:
    """`known` with a number for each subnet that has none, from 1 by sorted subnet; none is ever used again."""
    free = max(known.values(), default=0) + 1
    new = sorted({subnet for subnet in subnets if subnet not in known}, key=lambda text: subnet_order(ip_network(text)))
    return {**known, **{subnet: free + place for place, subnet in enumerate(new)}}


def adopt_numbers(known: Mapping[str, int], subnets: Iterable[str], given: Mapping[str, int]) -> Mapping[str, int]:
    """`known` with the cluster's number for each subnet that has none, unless another subnet here has that number."""
    adopted = dict(known)
    for subnet in subnets:
        number = given.get(subnet)
        if number is not None and subnet not in adopted and number not in adopted.values():
            adopted[subnet] = number
    return adopted


def load_node_file(path: Path) -> NodeFile:
    """The file, or an empty one if there is none yet. Raises BadFile."""
    try:
        read = json.loads(path.read_bytes())
    except FileNotFoundError:
        return NodeFile()
    except (OSError, ValueError) as error:
        raise _bad(path, str(error)) from error
    try:
        return _parse(read)
    except ValueError as error:
        raise _bad(path, str(error)) from error


def save_node_file(path: Path, bindings: NodeFile) -> None:
    """Replaces the file in one step and waits until the disk has it. Raises NotPermitted."""
    parts = {
        "gpus": bindings.gpus,
        "pairs": bindings.pairs,
        "rails": bindings.rails,
        "ids": bindings.ids,
        "cluster_rails": bindings.cluster_rails,
    }
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump({name: dict(part) for name, part in parts.items()}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        hint = "check that the folder exists and may be written to"
        raise NotPermitted("write the node file", str(path), error.strerror or str(error), hint) from error


def _parse(read: object) -> NodeFile:
    """Raises ValueError with what cannot be meant."""
    if not isinstance(read, dict):
        raise ValueError("it has to hold the objects gpus, pairs, rails and ids")  # noqa: TRY004 - all that is wrong with a file is one error
    return NodeFile(
        gpus=_part(read, "gpus", is_address, _is_number),
        pairs=_part(read, "pairs", is_address, lambda value: isinstance(value, str) and is_address(value)),
        rails=_part(read, "rails", _is_subnet, _is_number),
        ids=_part(read, "ids", is_address, lambda value: isinstance(value, str) and value != ""),
        cluster_rails=_part(read, "cluster_rails", _is_subnet, _is_number),
    )


def _part(read: dict[str, Any], name: str, is_key: Callable[[str], bool], is_value: Callable[[Any], bool]) -> Any:
    part = read.get(name, {})
    if not isinstance(part, dict):
        raise ValueError(f"{name} has to be an object")  # noqa: TRY004 - likewise
    for key, value in part.items():
        if not is_key(key) or not is_value(value):
            raise ValueError(f"{name} cannot have {key!r}: {value!r}")
    if len(set(part.values())) < len(part):
        raise ValueError(f"{name} has the same value twice")
    return part


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_subnet(text: str) -> bool:
    try:
        return str(ip_network(text)) == text
    except ValueError:
        return False


def _bad(path: Path, cause: str) -> BadFile:
    hint = "restore it from a copy: kubelet remembers devices by what it says; without running pods it may be removed"
    return BadFile("read the node file", str(path), cause, hint)
