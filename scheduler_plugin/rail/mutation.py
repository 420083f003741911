"""What is written into pods. Pure, and the same for a pod that has been through it."""

from collections.abc import Mapping, Sequence
from typing import Any

from dsagent.contract import LABEL_RAIL_DECISION, RESOURCE_MARKER, RESOURCE_SOME_RAIL, SCHEDULER_PROFILE

Object = Mapping[str, Any]

_AMOUNTS = ("requests", "limits")
_CONTAINERS = ("initContainers", "containers")
_PATCHED = (
    ("metadata", "labels"),
    *(("spec", name) for name in (*_CONTAINERS, "tolerations", "schedulerName")),
)
_DEFAULT_SCHEDULERS = ("", "default-scheduler")


class Refusal(Exception):
    """Why a pod cannot be admitted, and what to do; for its author."""


def wants_some_rail(pod: Object) -> bool:
    """Whether a container asks for GPUs of whatever class is chosen."""
    return any(RESOURCE_SOME_RAIL in amounts for amounts in _all_amounts(pod))


def with_class(pod: Object, resource: str) -> Object:
    """The pod whose containers ask for a class; raises Refusal if one names that class beside."""
    return with_amounts_of(pod, RESOURCE_SOME_RAIL, resource)


def with_amounts_of(pod: Object, old: str, new: str) -> Object:
    """The pod whose containers ask for as much of the new resource as of the old one, and no more for that.

    Raises Refusal if a container asks for both.
    """
    spec = pod["spec"]
    lists = {name: [_instead(one, old, new) for one in spec[name]] for name in _CONTAINERS if spec.get(name)}
    return {**pod, "spec": {**spec, **lists}}


def with_tolerations(pod: Object, tolerations: Sequence[Object]) -> Object:
    """The pod with those of the tolerations that it does not have."""
    spec = pod["spec"]
    own = list(spec.get("tolerations") or ())
    missing = [dict(one) for one in tolerations if one not in own]
    return {**pod, "spec": {**spec, "tolerations": own + missing}} if missing else pod


def with_decision(pod: Object, name: str) -> Object:
    """The pod with the label that says which RailDecision is its job's."""
    metadata = pod.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), LABEL_RAIL_DECISION: name}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def for_our_scheduler(pod: Object) -> Object:
    """The pod with our profile's name and the marker; itself if it names another scheduler or has its node."""
    spec = pod["spec"]
    given = spec.get("schedulerName") or ""
    if given not in (*_DEFAULT_SCHEDULERS, SCHEDULER_PROFILE) or spec.get("nodeName"):
        return pod
    if any(RESOURCE_MARKER in amounts for amounts in _all_amounts(pod)):
        return {**pod, "spec": {**spec, "schedulerName": SCHEDULER_PROFILE}}
    first, *others = spec["containers"]
    resources = first.get("resources") or {}
    marked = {name: {**(resources.get(name) or {}), RESOURCE_MARKER: "1"} for name in _AMOUNTS}
    containers = [{**first, "resources": {**resources, **marked}}, *others]
    return {**pod, "spec": {**spec, "schedulerName": SCHEDULER_PROFILE, "containers": containers}}


def patch(before: Object, after: Object) -> list[Object]:
    """RFC 6902, whole lists at a time."""
    changed = [
        (top, key) for top, key in _PATCHED if (before.get(top) or {}).get(key) != (after.get(top) or {}).get(key)
    ]
    return [{"op": "add", "path": f"/{top}/{key}", "value": after[top][key]} for top, key in changed]


def _instead(container: Object, old: str, new: str) -> Object:
    resources = container.get("resources") or {}
    changed = dict(resources)
    for which in _AMOUNTS:
        amounts = dict(resources.get(which) or {})
        if old not in amounts:
            continue
        if new in amounts:
            raise Refusal(
                f"container {container.get('name')} asks for {old}, which is {new} for this job, and for {new} beside: "
                "leave one out"
            )
        amounts[new] = amounts.pop(old)
        changed[which] = amounts
    return {**container, "resources": changed} if changed != resources else container


def _all_amounts(pod: Object) -> list[Object]:
    spec = pod["spec"]
    containers = [one for name in _CONTAINERS for one in spec.get(name) or ()]
    return [(one.get("resources") or {}).get(which) or {} for one in containers for which in _AMOUNTS]
