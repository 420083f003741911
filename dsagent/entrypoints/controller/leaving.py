"""What goes with the chart: before all else the finalizers on Datasets, and in the end what nodes have said."""

import logging
import time
from collections.abc import Iterator
from contextlib import suppress

from dsagent.api.v1alpha1.meta import ObjectMeta
from dsagent.contract import FINALIZER
from dsagent.core.cluster import (
    CLUSTER_DATASETS,
    DATASETS,
    NODE_DATASET_CACHES,
    NODE_TOPOLOGIES,
    RAIL_DECISIONS,
    Cluster,
    Object,
    Resource,
    metadata,
)
from dsagent.core.errors import NoSuchObject, ObjectConflict, TimedOut
from dsagent.entrypoints.controller.controller import set_finalizer
from dsagent.entrypoints.controller.leadership import GIVE_UP_SECONDS, Leadership

log = logging.getLogger("dsagent")

# So long no controller leads. One that was not uninstalled after all looks after its Datasets again after it.
LEAVING_SECONDS = 600
_ROUNDS = 10


def let_go(cluster: Cluster, leadership: Leadership, wait: float = GIVE_UP_SECONDS) -> None:
    """Takes our finalizers off while the controllers still run: nobody leads from `wait` seconds on, so nobody puts
    them back. Raises TimedOut if some come back all the same, and what Cluster raises.
    """
    with suppress(NoSuchObject):  # without a Lease no controller leads
        leadership.seize(LEAVING_SECONDS)
        time.sleep(wait)
    for _ in range(_ROUNDS):
        held = [(resource, names) for resource, names in _datasets(cluster) if FINALIZER in (names.finalizers or ())]
        if not held:
            return
        for resource, names in held:
            with suppress(NoSuchObject, ObjectConflict):  # the next round sees it as it is then
                set_finalizer(cluster, resource, names, there=False)
        log.info("took the finalizer off %d Datasets", len(held))
    raise TimedOut("take", "the finalizers off all Datasets", "something puts them back", "see what else runs")


def forget_nodes(cluster: Cluster) -> None:
    """Deletes what agents and schedulers have written, when they are gone. Raises what Cluster raises."""
    for resource in (NODE_DATASET_CACHES, NODE_TOPOLOGIES, RAIL_DECISIONS):
        for found in _all(cluster, resource):
            names = metadata(found)
            with suppress(NoSuchObject):
                cluster.delete(resource, names["name"], names.get("namespace", ""))


def _datasets(cluster: Cluster) -> Iterator[tuple[Resource, ObjectMeta]]:
    """All there are, also those that cannot be understood."""
    for resource in (DATASETS, CLUSTER_DATASETS):
        for found in _all(cluster, resource):
            yield resource, ObjectMeta.model_validate(metadata(found))


def _all(cluster: Cluster, resource: Resource) -> list[Object]:
    """All objects of a kind; none if its definition has been deleted."""
    try:
        return list(cluster.listing(resource).items)
    except NoSuchObject:
        return []
