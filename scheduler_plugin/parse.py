"""From Kubernetes objects, JSON as the API has them, to facts. All raise one of NOT_AN_OBJECT for what is none."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dsagent.api.v1alpha1.references import BadReference, parse_references
from dsagent.contract import (
    ANNOTATION_DATASETS,
    ANNOTATION_MODE,
    ANNOTATION_ON_FAILURE,
    CLUSTER_NAMESPACE,
    LABEL_RAIL_DECISION,
    RESOURCE_MARKER,
)
from scheduler_plugin.facts import (
    UNMEASURED_RATE,
    Cache,
    Container,
    DatasetFacts,
    Device,
    Held,
    Host,
    Key,
    PodFacts,
    Policies,
    Space,
    Taint,
    Topology,
    Zone,
)

Object = Mapping[str, Any]
NO_DEVICES: Mapping[str, int] = MappingProxyType({})
NOT_AN_OBJECT = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)
LARGEST = 30  # digits before the point of a quantity, and after it
LONGEST_KEPT = 100  # letters of a text whose meaning is remembered

_SUFFIXES: Mapping[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("MGTPE", 2)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def quantity(text: object) -> Decimal:
    """A resource.Quantity: 2, "500m", "1.5Gi", "2e3"."""
    written = str(text)
    return _quantity(written) if len(written) <= LONGEST_KEPT else _quantity.__wrapped__(written)


@lru_cache(4096)  # the same few are written again and again
def _quantity(written: str) -> Decimal:
    suffix = next((end for end in (written[-2:], written[-1:]) if end in _SUFFIXES), "")
    number = Decimal(written.removesuffix(suffix))
    if not number.is_finite() or abs(number.adjusted()) > LARGEST:
        raise ValueError(f"{written!r} is no quantity")
    return number * _SUFFIXES.get(suffix, Decimal(1))


def names_of(object_: Object) -> Key:
    """Namespace, empty for what has none, and name."""
    metadata = object_["metadata"]
    return _optional(metadata, "namespace"), _text(metadata["name"])


def pod(object_: Object) -> PodFacts:
    """A pod, also as kube-scheduler sends it. Of one that is bound only the devices matter, and there are many."""
    metadata, spec, status = object_["metadata"], object_.get("spec") or {}, object_.get("status") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    references, problem = _references(annotations)
    node = _optional(spec, "nodeName")
    containers = _containers(spec.get("containers") or (), only_devices=bool(node))
    init = _containers(spec.get("initContainers") or (), only_devices=bool(node))
    return PodFacts(
        uid=_optional(metadata, "uid"),
        namespace=_optional(metadata, "namespace") or "default",
        name=_text(metadata["name"]),
        node=node,
        over=status.get("phase") in ("Succeeded", "Failed"),
        references=references,
        problem=problem,
        waits=annotations.get(ANNOTATION_ON_FAILURE) != "source",
        containers=() if node else containers,
        init_containers=() if node else init,
        devices=_devices(containers, init),
        decision=_optional(metadata.get("labels") or {}, LABEL_RAIL_DECISION),
    )


def host(object_: Object) -> Host:
    """A Node. Cordoned, it has the taint that its controller gives it a moment later."""
    spec = object_.get("spec") or {}
    found = [Taint(one["key"], one.get("value") or "", one["effect"]) for one in spec.get("taints") or ()]
    if spec.get("unschedulable"):
        found.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    kept = tuple(one for one in found if one.effect != "PreferNoSchedule")
    return Host(names_of(object_)[1], object_["metadata"].get("labels") or {}, kept)


def dataset(object_: Object) -> DatasetFacts:
    """A Dataset, or a ClusterDataset: that has no namespace."""
    namespace, name = names_of(object_)
    status = object_.get("status") or {}
    size = status.get("bytes")
    return DatasetFacts(
        (namespace or CLUSTER_NAMESPACE, name),
        _optional(status, "version"),
        None if size is None else int(size),
        int(status.get("files") or 0),
    )


def cache(object_: Object) -> Cache | None:
    """What a NodeDatasetCache says; None before its agent has said anything."""
    if not (status := object_.get("status")):
        return None
    held: dict[Key, list[Held]] = {}
    evictable = [0, 0]
    for one in status.get("versions") or ():
        if one["state"] == "Failed":
            continue
        ready, used, size = one["state"] == "Ready", bool(one.get("inUse")), _space(one.get("allocated"))
        held.setdefault((_text(one["namespace"]), _text(one["name"])), []).append(
            Held(_optional(one, "version"), ready, int(one.get("bytesPresent") or 0), used, size)
        )
        if ready and not used:
            evictable = [evictable[0] + size.bytes, evictable[1] + size.inodes]
    rates = [int(rate) for rate in (status.get("rates") or {}).values() if rate]
    return Cache(
        free=_space(status.get("free")),
        evictable=Space(*evictable),
        inodes_limited=_space(status.get("capacity")).inodes > 0,
        rate=float(min(rates, default=UNMEASURED_RATE)),
        held={key: tuple(versions) for key, versions in held.items()},
    )


def topology(object_: Object) -> Topology | None:
    """What a NodeTopology says; None before its device plugin has said anything."""
    if not (status := object_.get("status")):
        return None
    kubelet = status.get("kubelet")
    return Topology(
        None if kubelet is None else _policies(kubelet),
        tuple(_zone(zone) for zone in status.get("zones") or ()),
        tuple(
            Device(
                _text(one["id"]),
                _text(one["resource"]),
                int(one.get("numaNode", -1)),
                bool(one.get("healthy", True)),
                bool(one.get("allocated")),
                one.get("scores") or {},
            )
            for one in status.get("devices") or ()
        ),
    )


@lru_cache(4096)  # nodes of one make have the same
def cpu_list(text: str) -> tuple[int, ...]:
    """The numbers of 0-3,8."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"a name is a text, not {value!r}")
    return value


def _optional(document: Object, name: str) -> str:
    """A field that is a text; empty where there is none."""
    return _text(document[name]) if document.get(name) else ""


def _references(annotations: Mapping[str, str]) -> tuple[tuple[tuple[str, str | None], ...], str]:
    written = annotations.get(ANNOTATION_DATASETS)
    if written is None or annotations.get(ANNOTATION_MODE) == "local":
        return (), ""
    try:
        return tuple((one.name, one.version) for one in parse_references(_text(written))), ""
    except (BadReference, ValueError) as error:
        return (), str(error)


def _containers(containers: Iterable[Object], *, only_devices: bool) -> tuple[Container, ...]:
    found = []
    for one in containers:
        resources = one.get("resources") or {}
        limits = _amounts(resources.get("limits") or {}, only_devices=only_devices)
        requests = {**limits, **_amounts(resources.get("requests") or {}, only_devices=only_devices)}
        found.append(Container(one.get("name") or "", requests, limits, one.get("restartPolicy") == "Always"))
    return tuple(found)


def _amounts(quantities: Mapping[str, object], *, only_devices: bool) -> dict[str, int]:
    return {
        name: int(quantity(text) * (1000 if name == "cpu" else 1))
        for name, text in quantities.items()
        if not only_devices or "/" in name
    }


def _devices(containers: Sequence[Container], init: Sequence[Container]) -> Mapping[str, int]:
    """Extended resources as the scheduler counts them: all containers together, or the largest init container. The
    marker is none of a node.
    """
    if not any("/" in name for one in (*containers, *init) for name in one.requests):
        return NO_DEVICES
    sidecars = [one for one in init if one.is_sidecar]
    names = {name for one in (*containers, *init) for name in one.requests if "/" in name and name != RESOURCE_MARKER}
    return {
        name: max(
            sum(one.requests.get(name, 0) for one in (*containers, *sidecars)),
            max((one.requests.get(name, 0) for one in init), default=0),
        )
        for name in sorted(names)
    }


def _space(amount: Object | None) -> Space:
    return Space(int(amount.get("bytes") or 0), int(amount.get("inodes") or 0)) if amount else Space()


def _zone(zone: Object) -> Zone:
    return Zone(
        int(zone["id"]),
        int(zone.get("socket", -1)),
        cpu_list(zone.get("cpus") or ""),
        cpu_list(zone.get("freeCpus") or ""),
        tuple(cpu_list(core) for core in zone.get("cores") or ()),
        tuple(sorted((int(other), int(far)) for other, far in (zone.get("distances") or {}).items())),
    )


def _policies(kubelet: Object) -> Policies:
    return Policies(
        kubelet.get("topologyManager", "none"),
        kubelet.get("scope", "container"),
        tuple(sorted((kubelet.get("topologyManagerOptions") or {}).items())),
        kubelet.get("cpuManager", "none"),
        tuple(sorted((kubelet.get("cpuManagerOptions") or {}).items())),
        cpu_list(kubelet.get("reservedCpus") or ""),
        kubelet.get("memoryManager", "None"),
    )
