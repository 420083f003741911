"""The NUMA term: what the node's Topology Manager would make of the pod (gpu_topology.predict, kubelet 1.34).

Raw: 1 / the number of NUMA nodes of the container that spans most, 0 where kubelet would refuse the pod, and 0.5 where
the verdict is unknown or kubelet has no preference. From 0 to 1, and its own normalised value. For pods that ask for
devices of a class.
"""

from gpu_topology.predict import UNKNOWN, Verdict
from scheduler_plugin.columns import Array, Columns
from scheduler_plugin.facts import Judgement, Needs, NodeFacts
from scheduler_plugin.kubelet import verdict

NEUTRAL = 0.5


def applies(needs: Needs) -> bool:
    """Whether the pod asks for devices."""
    return bool(needs.devices)


def alignment(needs: Needs, node: NodeFacts) -> Judgement:
    """How closely kubelet would place the pod."""
    told = verdict(needs.pod, node)
    return Judgement(value(told), f"{told.reason}: {told.why}" if told.why else told.reason)


def alignment_columns(needs: Needs, nodes: Columns) -> Array:
    """The same of many nodes."""
    return nodes.foretold(needs.pod, value)


def value(told: Verdict) -> float:
    """The raw value of a verdict."""
    if told.is_refusal:
        return 0.0
    widths = [len(one.nodes) for one in told.affinities.values() if one and one.nodes]
    return 1 / max(widths) if widths and told.reason != UNKNOWN else NEUTRAL


def as_it_is(raw: Array) -> Array:
    """It is normalised by nature."""
    return raw
