"""The links term: how near to each other the best GPUs are that the pod could have on a node.

Raw: for each class that the pod wants two or more of, the greatest sum over all pairs in a set of that many free
devices; a pair's score is its PCIe relation (CrossCPU 10, SameCPU 20, HostBridge 30, MultiSwitch 40, SingleSwitch 50,
SameBoard 60) and 100 for each NVLink, added (gpu_topology.api). 0 and more, 0 where there are not enough; normalised by
the greatest over the nodes. Exact for up to 8 free devices of a class; with more a set is grown from each device, by
the nearest at each step.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import Device, Judgement, Needs, NodeFacts

EXACT = 8
MOST = 16  # devices of a class in one pod; more are judged as so many


def applies(needs: Needs) -> bool:
    """Whether the pod asks for two GPUs of a class."""
    return any(count > 1 for count in needs.devices.values())


def best(needs: Needs, node: NodeFacts) -> Judgement:
    """The score of the best sets."""
    scores = {
        resource: best_scores(free_devices(node, resource))[min(count, MOST)]
        for resource, count in sorted(needs.devices.items())
        if count > 1
    }
    return Judgement(sum(scores.values()), "; ".join(f"{score:g} for {name}" for name, score in scores.items()))


def best_columns(needs: Needs, nodes: Columns) -> Array:
    """The same of many nodes."""
    raw = np.zeros(len(nodes))
    for resource, count in needs.devices.items():
        if count > 1:
            raw += nodes.links(resource)[:, min(count, MOST)]
    return raw


def free_devices(node: NodeFacts, resource: str) -> tuple[Device, ...]:
    """The healthy devices of a class that no container has."""
    devices = node.topology.devices if node.topology else ()
    return tuple(one for one in devices if one.resource == resource and one.healthy and not one.allocated)


def best_scores(devices: Sequence[Device]) -> list[float]:
    """For each number of devices up to MOST the score of the best set of so many; 0 where there are fewer."""
    scores = [0.0] * (MOST + 1)
    for size in range(2, min(len(devices), MOST) + 1):
        sets = itertools.combinations(devices, size) if len(devices) <= EXACT else _grown(devices, size)
        scores[size] = float(max(map(_score, sets)))
    return scores


def _grown(devices: Sequence[Device], size: int) -> list[tuple[Device, ...]]:
    found = []
    for first in devices:
        chosen, rest = [first], [one for one in devices if one is not first]
        while len(chosen) < size:
            nearest = max(rest, key=lambda one: sum(_pair(one.scores, other.id) for other in chosen))
            chosen.append(nearest)
            rest.remove(nearest)
        found.append(tuple(chosen))
    return found


def _score(devices: Sequence[Device]) -> int:
    return sum(_pair(one.scores, other.id) for one, other in itertools.combinations(devices, 2))


def _pair(scores: Mapping[str, int], other: str) -> int:
    return scores.get(other, 0)
