"""The data spread: when a dataset's only holder is busy, its pods go to other nodes as well, which then hold it too.

Raw: the most pods bound to the node that use one of the pod's datasets; 0 and more. Normalised: 1 below `pods`, then
pods / (raw + 1). A holder with twice as many pods as that loses half of the term's weight: to outrank the dataset term,
the weight has to be more than twice as large. Off (weight 0) unless the settings say otherwise.
"""

import numpy as np

from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import Judgement, Needs, NodeFacts


def users(needs: Needs, node: NodeFacts) -> Judgement:
    """How many pods here use one of the pod's datasets, at most."""
    most, name = max((node.users.get(wanted.key, 0), wanted.name) for wanted in needs.wanted)
    return Judgement(most, f"{most} pods here use {name}" if most else "no pod here uses its data")


def users_columns(needs: Needs, nodes: Columns) -> Array:
    """The same of many nodes."""
    most = np.zeros(len(nodes))
    for wanted in needs.wanted:
        np.maximum(most, nodes.users(wanted.key), out=most)
    return most


def relieved(raw: Array, pods: int) -> Array:
    """What remains for nodes with so many users."""
    return np.where(raw < pods, 1.0, pods / (raw + 1.0))
