"""The numbers by which the whole cluster knows its rails: a ConfigMap from numbers to subnets.

docs/adr/0013 says why. A key is never given another value, and none is taken away: kubelets remember devices by the
names of classes, which have the number in them.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network

from dsagent.api.v1alpha1.node_topology import NodeTopology
from dsagent.core.cluster import CONFIG_MAPS, Cluster, Object, metadata
from dsagent.core.errors import NoSuchObject

NodeRails = tuple[tuple[str, int | None], ...]
"""The subnets of a node, and the numbers that it knows them by."""


def rails_of(topology: Object) -> NodeRails:
    """From a NodeTopology, most of whose changes are none of these. Raises ValueError."""
    status = NodeTopology.model_validate(topology).status
    return tuple((rail.subnet, rail.number) for rail in status.rails) if status else ()


class RailNumbers:
    """Numbers the subnets that nodes report, in the ConfigMap of that name."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._numbered: frozenset[str] = frozenset()

    def look(self, nodes: Iterable[NodeRails]) -> None:
        """Writes what is missing. Raises what Cluster raises: ObjectConflict if another was faster, which the next look
        sees.
        """
        reported: dict[str, int | None] = {}
        for rails in nodes:
            for subnet, number in rails:
                reported[subnet] = reported.get(subnet) or number
        if self._numbered.issuperset(reported):
            return
        try:
            found = self._cluster.get(CONFIG_MAPS, self._name, self._namespace)
        except NoSuchObject:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._name}}
            found = self._cluster.create(CONFIG_MAPS, body, self._namespace)
        known: Mapping[str, str] = found.get("data") or {}
        new = new_numbers(known, reported)
        if new:
            change = {"metadata": {"resourceVersion": metadata(found)["resourceVersion"]}, "data": new}
            self._cluster.patch(CONFIG_MAPS, self._name, change, self._namespace)
        self._numbered = frozenset({*known.values(), *new.values()})


def new_numbers(known: Mapping[str, str], reported: Mapping[str, int | None]) -> Mapping[str, str]:
    """What is to be added to `known` for the subnets that have no number there: the numbers that nodes already use, if
    nobody else has them, as after the loss of the ConfigMap; else those after the highest ever, by sorted subnet.
    """
    taken = {int(number) for number in known if number.isdecimal()}
    missing = sorted((subnet for subnet in reported if subnet not in known.values()), key=_order)
    new: dict[str, str] = {}
    for subnet in missing:
        used = reported[subnet]
        if used is not None and used not in taken:
            taken.add(used)
            new[str(used)] = subnet
    after = max(taken, default=0) + 1
    rest = [subnet for subnet in missing if subnet not in new.values()]
    return new | {str(after + place): subnet for place, subnet in enumerate(rest)}


def _order(subnet: str) -> tuple[int, int, int, str]:
    """IPv4 before IPv6, then by address; what is none comes last."""
    try:
        network = ip_network(subnet)
    except ValueError:
        return 9, 0, 0, subnet
    return network.version, int(network.network_address), network.prefixlen, subnet
