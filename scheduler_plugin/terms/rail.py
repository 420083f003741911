"""The rail term: how well the pod's GPUs fit what a node has free of their class.

Raw: wanted / free of the class, 0 where fewer are free than wanted; with several classes the smallest. 1 is a node that
has exactly as many, so that rails which are whole stay whole for larger jobs. From 0 to 1; normalised by the greatest
over the nodes. The class is the one that was chosen for the whole job; a pod without one has no such term.
"""

import numpy as np

from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import Judgement, Needs, NodeFacts


def applies(needs: Needs) -> bool:
    """Whether the pod asks for GPUs of a class."""
    return bool(needs.devices)


def fit(needs: Needs, node: NodeFacts) -> Judgement:
    """What part of the class's free GPUs the pod would take."""
    found = [(count, node.free_devices(resource), resource) for resource, count in sorted(needs.devices.items())]
    raw = min(count / free if free >= count else 0.0 for count, free, _ in found)
    return Judgement(raw, "; ".join(f"{count} wanted, {free} free of {resource}" for count, free, resource in found))


def fit_columns(needs: Needs, nodes: Columns) -> Array:
    """The same of many nodes."""
    raw = np.ones(len(nodes))
    for resource, count in needs.devices.items():
        free = nodes.free_devices(resource)
        raw = np.minimum(raw, np.where(free >= count, count / np.maximum(free, 1), 0.0))
    return raw
