"""The links term: how near to each other the best GPUs are that the pod could have on a node.

Raw: for each class that the pod wants two or more of, the greatest sum over all pairs in a set of that many free
devices; a pair's score is its PCIe relation (CrossCPU 10, SameCPU 20, HostBridge 30, MultiSwitch 40, SingleSwitch 50,
SameBoard 60) and 100 for each NVLink, added (gpu_topology.api). 0 and more, 0 where there are not enough; normalised by
the greatest over the nodes. Exact for up to 8 free devices of a class; with more a set is grown from each device, by
the nearest at each step.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import Device, Judgement, Needs, NodeFacts

EXACT = 8
Pairs = tuple[tuple[int, ...], ...]
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


def best_scores(devices: Sequence[Device]) -> tuple[float, ...]:
    """For each number of devices up to MOST the score of the best set of so many; 0 where there are fewer."""
    return _best_scores(tuple(tuple(one.scores.get(other.id, 0) for other in devices) for one in devices))


@lru_cache(4096)  # nodes of one make, with the same devices free, have the same
def _best_scores(pairs: Pairs) -> tuple[float, ...]:
    scores = [0.0] * (MOST + 1)
    devices = range(len(pairs))
    for size in range(2, min(len(pairs), MOST) + 1):
        sets = itertools.combinations(devices, size) if len(pairs) <= EXACT else _grown(pairs, size)
        scores[size] = float(max(sum(pairs[a][b] for a, b in itertools.combinations(one, 2)) for one in sets))
    return tuple(scores)


def _grown(pairs: Pairs, size: int) -> list[tuple[int, ...]]:
    found = []
    for first in range(len(pairs)):
        chosen, rest = [first], [one for one in range(len(pairs)) if one != first]
        while len(chosen) < size:
            nearest = max(rest, key=lambda one: sum(pairs[one][other] for other in chosen))
            chosen.append(nearest)
            rest.remove(nearest)
        found.append(tuple(chosen))
    return found
