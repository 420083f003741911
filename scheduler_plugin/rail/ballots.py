"""What the nodes of the view say to a vote."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsagent.contract import LABEL_RAIL_DECISION, RESOURCE_SOME_RAIL
from scheduler_plugin import parse
from scheduler_plugin.arrays import Slots
from scheduler_plugin.columns import Array, Counts
from scheduler_plugin.facts import NodeFacts, PodFacts
from scheduler_plugin.filters import refuse
from scheduler_plugin.rail.mutation import Refusal, with_class
from scheduler_plugin.rail.placement import takes
from scheduler_plugin.rail.vote import Ballot, Choice, choose
from scheduler_plugin.settings import Filters, Settings
from scheduler_plugin.view import View

Object = Mapping[str, Any]


def decide(view: View, pod: Object, job: str, settings: Settings) -> Choice:
    """The class for all pods of a job, of which `pod` is the first; `job` is the name of its decision.

    The pods of the job that have a node already decide for the others. Otherwise nodes vote by what they have free; if
    none has enough, by what they have at all: the job waits for room. Raises Refusal if no node has enough of a class.
    """
    classes = _classes(view, settings)
    if already := _taken_already(view, pod, classes):
        return Choice(already, {}, "pods of the job that have a node already have it")
    if choice := free_choice(view, pod, job, settings):
        return choice
    wanted = facts_of(pod).devices.get(RESOURCE_SOME_RAIL, 0)
    names = _names(view, pod)
    nodes = view.columns(names)
    whole = {resource: _healthy(nodes.nodes, resource) for resource in classes}
    if choice := choose(_ballots(names, whole, _shares(view, pod, nodes)), wanted, job):
        reason = f"no node has {wanted} free of any class now, so they voted by what they have at all: {choice.reason}"
        return Choice(choice.resource, choice.votes, reason, choice.nodes)
    raise Refusal(_nothing(wanted, len(names), whole, settings.rails.classes))


def free_choice(view: View, pod: Object, job: str, settings: Settings) -> Choice | None:
    """The class that nodes choose by what they have free; None if no class has enough anywhere."""
    names = _names(view, pod)
    nodes = view.columns(names)
    free = {resource: _possible(view, pod, resource, nodes, settings.filters) for resource in _classes(view, settings)}
    wanted = facts_of(pod).devices.get(RESOURCE_SOME_RAIL, 0)
    return choose(_ballots(names, free, _shares(view, pod, nodes)), wanted, job)


def has_room(view: View, pod: Object, resource: str, settings: Settings) -> bool:
    """Whether some node has enough of a class free for a pod that asks for some rail."""
    nodes = view.columns(_names(view, pod))
    most = int(_possible(view, pod, resource, nodes, settings.filters).max(initial=0))
    return most >= max(1, facts_of(pod).devices.get(RESOURCE_SOME_RAIL, 0))


def is_class(resource: str, pattern: str) -> bool:
    """Whether a resource is the class of a rail; `{n}` in the pattern stands for the rail's number."""
    return re.fullmatch(re.escape(pattern).replace(re.escape("{n}"), "[0-9]+"), resource) is not None


def facts_of(pod: Object) -> PodFacts:
    """The facts of a pod that is being admitted: it may have no name yet."""
    metadata = pod.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or "new"
    return parse.pod({**pod, "metadata": {**metadata, "name": name}})


def _classes(view: View, settings: Settings) -> list[str]:
    return [name for name in view.classes() if is_class(name, settings.rails.classes)]


def _names(view: View, pod: Object) -> list[str]:
    """The nodes that take the pod."""
    return [name for name in view.node_names() if (host := view.host(name)) and takes(host, pod["spec"])]


def _taken_already(view: View, pod: Object, classes: Sequence[str]) -> str | None:
    metadata = pod.get("metadata") or {}
    if not (decision := (metadata.get("labels") or {}).get(LABEL_RAIL_DECISION)):
        return None
    bound = [one for one in view.pods_of(metadata.get("namespace") or "", decision) if one.node]
    return min((name for one in bound for name in one.devices if name in classes), default=None)


def _possible(view: View, pod: Object, resource: str, nodes: Slots, filters: Filters) -> Counts:
    """The free devices of a class; 0 where the pod would be refused."""
    refused = refuse(view.needs(facts_of(with_class(pod, resource))), nodes, filters).unresolvable
    free = nodes.free_devices(resource)
    free[list(refused)] = 0
    return free


def _healthy(nodes: Sequence[NodeFacts], resource: str) -> NDArray[np.int64]:
    return np.array(
        [
            sum(one.healthy and one.resource == resource for one in facts.topology.devices) if facts.topology else 0
            for facts in nodes
        ],
        dtype=np.int64,
    )


def _shares(view: View, pod: Object, nodes: Slots) -> Array:
    """The share of the pod's data that is on each node; 0 for a pod without data."""
    wanted = view.needs(facts_of(pod)).wanted
    total = sum(one.bytes for one in wanted)
    if not total:
        return np.zeros(len(nodes))
    present = sum((nodes.present(one) for one in wanted), np.zeros(len(nodes), dtype=np.int64))
    return present / float(total)


def _ballots(names: Sequence[str], counts: Mapping[str, Counts], shares: Array) -> list[Ballot]:
    return [
        Ballot(name, {resource: int(found[place]) for resource, found in counts.items()}, float(shares[place]))
        for place, name in enumerate(names)
    ]


def _nothing(wanted: int, nodes: int, whole: Mapping[str, Counts], pattern: str) -> str:
    most = max((int(found.max(initial=0)) for found in whole.values()), default=0)
    there = f"the most that one has is {most}" if most else f"none has a class named as {pattern}"
    return (
        f"{RESOURCE_SOME_RAIL} means GPUs of one rail, and of the {nodes} nodes that the pod may run on none has "
        f"{wanted} of one class: {there}; kubectl get nodetopologies shows what there is"
    )
