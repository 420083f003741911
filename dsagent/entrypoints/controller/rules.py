"""What the controller decides about one dataset, from what nodes say. Pure."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset, DatasetStatus, Phase, Prefetch, PrefetchStatus
from dsagent.api.v1alpha1.meta import Condition, set_condition
from dsagent.api.v1alpha1.node_dataset_cache import NodeVersion
from dsagent.core.quantities import human_size, parse_duration

MAX_NODES_SHOWN = 100
# A node that is there and still lists copies of a deleted dataset after this time is not waited for any longer.
LONGEST_DELETION = timedelta(minutes=10)
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class NodeState:
    """A node: its labels, whether it is ready and takes pods, and whether its agent has ever written what it holds."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    schedulable: bool
    has_agent: bool


@dataclass(frozen=True)
class Copy:
    """A version of the dataset on a node."""

    node: str
    version: NodeVersion


def status_of(
    dataset: Dataset | ClusterDataset, nodes: Mapping[str, NodeState], copies: Sequence[Copy], now: datetime
) -> DatasetStatus:
    """The dataset's status. `copies` are those on all nodes, of nodes that are gone, too."""
    here = [copy for copy in copies if copy.node in nodes]
    ready = [copy for copy in here if copy.version.state == "Ready"]
    current = max(ready, key=lambda copy: (copy.version.checked or _NEVER, copy.version.version), default=None)
    holders = sorted({copy.node for copy in ready if current and copy.version.version == current.version.version})
    before = dataset.status or DatasetStatus()
    prefetch = _prefetch(dataset, before.prefetch, nodes, holders, now)
    found = DatasetStatus(
        observed_generation=dataset.metadata.generation,
        phase=_phase(dataset, here, holders),
        prefetch=prefetch,
        conditions=_conditions(dataset, before, here, holders, prefetch, now),
    )
    if current is None:
        return found
    content = current.version
    shown = {
        "version": content.version,
        "files": content.files,
        "bytes": content.bytes,
        "size": human_size(content.bytes),
        "node_count": len(holders),
        "nodes": holders[:MAX_NODES_SHOWN],
    }
    return found.model_copy(update=shown)


def may_go(
    dataset: Dataset | ClusterDataset, nodes: Mapping[str, NodeState], copies: Sequence[Copy], now: datetime
) -> bool:
    """Whether nothing holds a deleted dataset any more: no node that could still remove it has a copy that nobody uses.
    A node that is gone or not ready is not waited for, and no node for long.
    """
    deleted = dataset.metadata.deletion_timestamp
    if deleted is None:
        return False
    waited_for = [copy for copy in copies if copy.node in nodes and nodes[copy.node].ready and not copy.version.in_use]
    return not waited_for or now - deleted > LONGEST_DELETION


def chosen_nodes(uid: str, wish: Prefetch, nodes: Mapping[str, NodeState], before: Collection[str]) -> list[str]:
    """The nodes that fetch a dataset ahead: those of before as long as they are fit, and as many more as are missing,
    other ones for each dataset.
    """
    selector = wish.node_selector
    matching = [node for node in nodes.values() if selector is None or selector.matches(node.labels)]
    # One that is only away for a while keeps its place: its data are still there.
    kept = {node.name for node in matching if node.name in before and node.has_agent}
    fresh = {node.name for node in matching if node.ready and node.schedulable and node.has_agent} - kept
    order = sorted(kept, key=lambda name: _rank(uid, name)) + sorted(fresh, key=lambda name: _rank(uid, name))
    return sorted(order if wish.nodes is None else order[: wish.nodes])


def next_look(datasets: Collection[Dataset | ClusterDataset], now: datetime) -> float:
    """Seconds until time alone changes what is to be written; at most a minute."""
    moments = []
    for dataset in datasets:
        wish = dataset.spec.prefetch
        if wish and wish.until:
            moments.append(wish.until)
        if (due := _renewal(dataset)) is not None:
            moments.append(due)
    seconds = [(moment - now).total_seconds() for moment in moments if moment > now]
    return max(0.1, min([60.0, *seconds]))


def _prefetch(
    dataset: Dataset | ClusterDataset,
    before: PrefetchStatus | None,
    nodes: Mapping[str, NodeState],
    holders: Sequence[str],
    now: datetime,
) -> PrefetchStatus | None:
    wish = dataset.spec.prefetch
    if wish is None or dataset.metadata.deletion_timestamp or (wish.until and wish.until <= now):
        return None
    uid = dataset.metadata.uid or dataset.metadata.name
    chosen = chosen_nodes(uid, wish, nodes, before.nodes if before else ())
    due = _renewal(dataset)
    renewed = before.renewed if before else None
    if renewed is None or (due is not None and due <= now):
        renewed = now.replace(microsecond=0)
    return PrefetchStatus(nodes=chosen, ready=len(set(chosen) & set(holders)), renewed=renewed)


def _renewal(dataset: Dataset | ClusterDataset) -> datetime | None:
    """When the nodes of a prefetch are to compare again, or None if never."""
    prefetch = dataset.status.prefetch if dataset.status else None
    if not dataset.spec.max_age or dataset.spec.check == "never" or not (prefetch and prefetch.renewed):
        return None
    return prefetch.renewed + timedelta(seconds=max(1.0, parse_duration(dataset.spec.max_age)))


def _phase(dataset: Dataset | ClusterDataset, here: Sequence[Copy], holders: Sequence[str]) -> Phase:
    if dataset.metadata.deletion_timestamp:
        return "Deleting"
    if holders:
        return "Ready"
    states = {copy.version.state for copy in here}
    if states & {"Caching", "Pending"}:
        return "Caching" if "Caching" in states else "Pending"
    return "Failed" if "Failed" in states else "Pending"


def _conditions(
    dataset: Dataset | ClusterDataset,
    before: DatasetStatus,
    here: Sequence[Copy],
    holders: Sequence[str],
    prefetch: PrefetchStatus | None,
    now: datetime,
) -> list[Condition]:
    failed = next((copy for copy in here if copy.version.state == "Failed"), None)
    if holders:
        found = [_condition(dataset, "Cached", True, "OnNodes", f"on {_nodes(len(holders))}", now)]
    elif failed:
        message = f"{failed.node}: {failed.version.message or 'it says no more'}"
        found = [_condition(dataset, "Cached", False, "Failed", message, now)]
    else:
        found = [_condition(dataset, "Cached", False, "OnNoNode", "no node has it whole yet", now)]
    if prefetch is not None:
        wanted = dataset.spec.prefetch.nodes if dataset.spec.prefetch else None
        short = len(prefetch.nodes) < (1 if wanted is None else wanted)
        done = prefetch.ready == len(prefetch.nodes) and not short
        message = f"on {prefetch.ready} of {_nodes(len(prefetch.nodes))}"
        if short:
            asked = "all that match" if wanted is None else wanted
            message += f"; {asked} are asked for, and no more are fit for it: ready, schedulable, with an agent"
        reason = "TooFewNodes" if short else "Done" if done else "UnderWay"
        found.append(_condition(dataset, "Prefetched", done, reason, message, now))
    conditions: Sequence[Condition] = [
        one for one in before.conditions if one.type != "Prefetched" or prefetch is not None
    ]
    for one in found:
        conditions = set_condition(conditions, one)
    return list(conditions)


def _condition(
    dataset: Dataset | ClusterDataset, kind: str, holds: bool, reason: str, message: str, now: datetime
) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        observed_generation=dataset.metadata.generation,
        last_transition_time=now.replace(microsecond=0),
        reason=reason,
        message=message[:1024],
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _rank(uid: str, node: str) -> bytes:
    return hashlib.blake2b(f"{uid}/{node}".encode(), digest_size=8).digest()
