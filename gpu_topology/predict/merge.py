"""The Topology Manager: one set of NUMA nodes from the hints of all resources.

After kubelet 1.34's pkg/kubelet/cm/topologymanager. Kubelet tries every combination of hints; since its comparison of
two merged hints is a total order, the best can be found without that.
"""

from collections.abc import Callable, Mapping, Sequence

from gpu_topology.predict.facts import Options, Policy
from gpu_topology.predict.hints import ANYWHERE, Hint

Order = Callable[[int], tuple[float, ...]]


def merge(
    policy: Policy,
    options: Options,
    nodes: int,
    distances: Mapping[int, Mapping[int, int]],
    hints: Sequence[Sequence[Hint]],
) -> Hint:
    """The best hint for a policy other than none; a pod is refused if it is not preferred, but by best-effort."""
    order = _order(policy, options, distances)
    chosen = [resource for resource in hints if resource != ANYWHERE]
    if policy is Policy.SINGLE_NUMA_NODE:
        chosen = [[hint for hint in resource if _is_single(hint)] for resource in chosen]
        best = _preferred(nodes, chosen, order)
        if best is None or best.mask == nodes:
            return Hint(None, preferred=best is not None)
        return best
    return _preferred(nodes, chosen, order) or _any(nodes, chosen, order)


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _order(policy: Policy, options: Options, distances: Mapping[int, Mapping[int, int]]) -> Order:
    """Which of two sets of nodes is better: the smaller, then the closer if that is asked for, then the lower."""
    if policy is Policy.SINGLE_NUMA_NODE or not options.prefer_closest_numa_nodes:
        return lambda mask: (mask.bit_count(), mask)

    def with_distance(mask: int) -> tuple[float, ...]:
        inside = [node for node in distances if mask >> node & 1]
        return mask.bit_count(), sum(distances[one][other] for one in inside for other in inside), mask

    return with_distance


def _preferred(nodes: int, hints: Sequence[Sequence[Hint]], order: Order) -> Hint | None:
    """The best set of nodes that every resource prefers."""
    common: set[int] | None = None
    for resource in hints:
        masks = {hint.mask for hint in resource if hint.preferred and hint.mask is not None}
        common = masks if common is None else common & masks
    masks_here = {nodes} if common is None else {mask & nodes for mask in common if mask & nodes}
    return Hint(min(masks_here, key=order), preferred=True) if masks_here else None


def _any(nodes: int, hints: Sequence[Sequence[Hint]], order: Order) -> Hint:
    """The best overlap of hints when there is none that all prefer.

    As wide as the resource that needs most nodes, or else narrower, or else wider.
    """
    overlaps = {nodes}
    width = 0
    for resource in hints:
        masks = {hint.mask for hint in resource if hint.mask is not None}
        if masks:
            overlaps = {one & mask for one in overlaps for mask in masks if one & mask}
            width = max(width, min(mask.bit_count() for mask in masks))
    if not overlaps:
        return Hint(nodes, preferred=False)

    def rank(mask: int) -> tuple[float, ...]:
        count = mask.bit_count()
        kind = 0 if count == width else 1 if count < width else 2
        return kind, (-count if kind == 1 else 0), *order(mask)

    return Hint(min(overlaps, key=rank), preferred=False)
