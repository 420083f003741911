"""The dataset term: whether the pod's data are on the node already.

`exact`, the paper's formula: if all datasets of the pod are on the node and usable, the number of them; if one is
missing, or needs an update while a task uses it, or the pod's wish cannot be understood: 0. Raw 0 to the number of
datasets; normalised by the greatest over the nodes. A part of the datasets is worth nothing: the job would wait.

`expected-wait`: seconds until all would be there, the missing bytes divided by the slowest of the node's measured
rates of source, network, disk and unpacking. Raw 0 and more; normalised as 1 - raw / greatest. An older version counts
as nothing, for what it shares with the new one is known only when that has been listed.
"""

import numpy as np

from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import UNMEASURED_RATE, Judgement, Needs, NodeFacts, State, Wanted, holding


def applies(needs: Needs) -> bool:
    """Whether the pod asks for data."""
    return bool(needs.wanted)


def exact(needs: Needs, node: NodeFacts) -> Judgement:
    """The number of the pod's datasets if the node has all of them, else 0."""
    found = [(wanted, holding(node, wanted).state) for wanted in needs.wanted]
    missing = [wanted for wanted, state in found if state is State.MISSING]
    busy = [wanted for wanted, state in found if state is State.OLD_IN_USE]
    if missing:
        return Judgement(0, f"{_names(missing)} not here")
    if busy:
        return Judgement(0, f"{_names(busy)} here in an older version that is in use")
    old = [wanted for wanted, state in found if state is State.OLD]
    return Judgement(len(found), f"has {_names(old)} in an older version" if old else f"has {_names(needs.wanted)}")


def exact_columns(needs: Needs, nodes: Columns) -> Array:
    """The same of many nodes."""
    usable = np.ones(len(nodes), dtype=bool)
    for wanted in needs.wanted:
        state = nodes.state(wanted)
        usable &= (state == State.WHOLE) | (state == State.OLD)
    return usable * float(len(needs.wanted))


def expected_wait(needs: Needs, node: NodeFacts) -> Judgement:
    """Seconds until the node would have all of the pod's datasets."""
    missing = sum(wanted.bytes - holding(node, wanted).present for wanted in needs.wanted)
    seconds = missing / (node.cache.rate if node.cache else UNMEASURED_RATE)
    if not missing:
        return Judgement(0.0, f"has {_names(needs.wanted)}")
    return Judgement(seconds, f"{missing:,} bytes to come, about {seconds:,.0f} s at the rate of its slowest part")


def expected_wait_columns(needs: Needs, nodes: Columns) -> Array:
    """The same of many nodes."""
    missing = np.zeros(len(nodes))
    for wanted in needs.wanted:
        missing += wanted.bytes - nodes.present(wanted)
    return missing / nodes.rate


def _names(wanted: list[Wanted] | tuple[Wanted, ...]) -> str:
    return ", ".join(one.name for one in wanted)
