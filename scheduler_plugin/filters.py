"""Why a node is refused: it could never hold the pod's data, or kubelet would refuse the pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from scheduler_plugin.arrays import Slots, room
from scheduler_plugin.facts import HEADROOM, Needs, NodeFacts, Space, holding
from scheduler_plugin.settings import Filters


@dataclass(frozen=True)
class Refusals:
    """Which of the nodes asked about are refused, by their place in the request, and why.

    `unresolvable`: evicting pods would not help. `failed`: checks that could not be made; they refuse nothing.
    """

    unresolvable: Mapping[int, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


def refuse(needs: Needs, nodes: Slots, filters: Filters) -> Refusals:
    """The nodes that the pod must not go to."""
    unresolvable: dict[int, str] = {}
    failed: dict[str, str] = {}
    for name, wanted, check in (("numa", filters.numa, kubelet_refuses), ("space", filters.space, never_holds)):
        if wanted:
            try:
                unresolvable |= check(needs, nodes)
            except Exception as error:  # noqa: BLE001 - a check that fails refuses nothing
                failed[name] = repr(error)
    return Refusals(unresolvable, failed)


def never_holds(needs: Needs, nodes: Slots) -> dict[int, str]:
    """The nodes whose cache could not take the data even after evicting all that nobody uses."""
    if not needs.wanted or not needs.pod.waits:
        return {}
    size, files = np.zeros(len(nodes)), np.zeros(len(nodes))
    for wanted in needs.wanted:
        absent = nodes.placed(wanted) == 0
        size += absent * (HEADROOM * wanted.size.bytes)
        files += absent * (HEADROOM * wanted.size.inodes)
    room_bytes, room_inodes = nodes.room
    refused = ((size > 0) & (size > room_bytes)) | ((files > 0) & (files > room_inodes))
    facts = nodes.nodes if refused.any() else ()
    return {place: space_reason(needs, facts[place]) or "" for place in np.flatnonzero(refused).tolist()}


def space_reason(needs: Needs, node: NodeFacts) -> str | None:
    """Why a node could never hold the pod's data, with the numbers; None if it could."""
    if not needs.pod.waits:
        return None
    absent = [wanted for wanted in needs.wanted if not holding(node, wanted).placed]
    need = Space(
        round(HEADROOM * sum(one.size.bytes for one in absent)),
        round(HEADROOM * sum(one.size.inodes for one in absent)),
    )
    there = room(node)
    if not (0 < need.bytes > there[0] or 0 < need.inodes > there[1]):
        return None
    names = ", ".join(one.name for one in absent)
    amounts = " and ".join(
        f"{wanted:,} {unit} ({HEADROOM} times the size), {max(0.0, free):,.0f} can be had"
        for wanted, free, unit in zip(need, there, ("bytes", "inodes"), strict=True)
        if wanted > free
    )
    return f"cannot hold {names}: needs {amounts} with all evicted that nobody uses"


def kubelet_refuses(needs: Needs, nodes: Slots) -> dict[int, str]:
    """The nodes whose kubelet would refuse the pod; what is unknown is no reason."""
    verdicts = nodes.verdicts(needs.pod)
    refused = np.flatnonzero(verdicts.each(lambda told: float(told.is_refusal)))
    told = [verdicts.found[place] for place in verdicts.places[refused].tolist()]
    return {place: f"{one.reason}: {one.why}" for place, one in zip(refused.tolist(), told, strict=True)}
