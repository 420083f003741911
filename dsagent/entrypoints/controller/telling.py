"""What people are told of a Dataset's life in events, beside what its conditions say."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dsagent.adapters.kubernetes.recorder import Said, about_dataset
from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset, DatasetStatus
from dsagent.api.v1alpha1.meta import Condition
from dsagent.contract import (
    EVENT_AVAILABLE,
    EVENT_COPIES_LEFT,
    EVENT_DELETING,
    EVENT_PREFETCH_DONE,
    EVENT_PREFETCH_ENDED,
    EVENT_PREFETCH_RENEWED,
    EVENT_PREFETCH_SHORT,
    EVENT_PREFETCH_STARTED,
    EVENT_UNAVAILABLE,
)
from dsagent.entrypoints.controller.rules import Copy, NodeState

# API servers keep events for an hour.
ONCE_IN = timedelta(hours=1)
_SHOWN = 5


class News(NamedTuple):
    """What an event says."""

    reason: str
    note: str
    warning: bool = False


def news_of(before: DatasetStatus, after: DatasetStatus) -> list[News]:
    """What is worth telling of a change of the status. Failures and versions are told by the agents that have them."""
    found = []
    if after.phase == "Deleting" and before.phase != "Deleting" and after.nodes:
        found.append(News(EVENT_DELETING, f"unused copies are being removed from {some(after.nodes)}"))
    if after.phase == "Ready" and before.phase != "Ready":
        found.append(News(EVENT_AVAILABLE, f"{after.version} is whole on {some(after.nodes)}"))
    if before.phase == "Ready" and after.phase not in ("Ready", "Deleting"):
        note = f"no node has it any more; {some(before.nodes)} had. The next pod that asks brings it again"
        found.append(News(EVENT_UNAVAILABLE, note))
    return found + _of_prefetch(before, after)


def news_of_end(copies: Sequence[Copy], nodes: Mapping[str, NodeState]) -> list[News]:
    """What is told of a deleted Dataset that goes although there are copies."""
    left = [f"{copy.node} ({_why_left(copy, nodes[copy.node])})" for copy in copies if copy.node in nodes]
    if not left:
        return []
    stuck = any(copy.node in nodes and _is_stuck(copy, nodes[copy.node]) for copy in copies)
    note = f"copies are left on {some(left)}; dsctl evict NAME --node NODE removes what is unused"
    return [News(EVENT_COPIES_LEFT, note, warning=stuck)]


class Teller:
    """Says the same of the same object once an hour at most."""

    def __init__(self, say: Callable[[Said], None]) -> None:
        self._say = say
        self._told: dict[Said, datetime] = {}

    def tell(self, dataset: Dataset | ClusterDataset, news: Sequence[News], now: datetime) -> None:
        """Lets events of a Dataset be written."""
        self._told = {said: when for said, when in self._told.items() if now - when < ONCE_IN}
        for reason, note, warning in news:
            said = Said(about_dataset(dataset), reason, note, warning)
            if said not in self._told:
                self._told[said] = now
                self._say(said)


def some(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _of_prefetch(before: DatasetStatus, after: DatasetStatus) -> list[News]:
    if after.prefetch is None:
        ended = before.prefetch is not None and after.phase != "Deleting"
        note = "its nodes need not keep it any longer; what is there stays until its room is needed"
        return [News(EVENT_PREFETCH_ENDED, note)] if ended else []
    found = []
    if before.prefetch is None and after.prefetch.nodes:
        found.append(News(EVENT_PREFETCH_STARTED, f"it is brought to {some(after.prefetch.nodes)}"))
    elif before.prefetch and before.prefetch.renewed != after.prefetch.renewed:
        note = f"spec.maxAge is over: it is compared with its source on {some(after.prefetch.nodes)}"
        found.append(News(EVENT_PREFETCH_RENEWED, note))
    was, now = _prefetched(before), _prefetched(after)
    if now and now.reason != (was.reason if was else None):
        if now.reason == "TooFewNodes":
            found.append(News(EVENT_PREFETCH_SHORT, now.message, warning=True))
        elif now.status == "True":
            found.append(News(EVENT_PREFETCH_DONE, now.message))
    return found


def _prefetched(status: DatasetStatus) -> Condition | None:
    return next((one for one in status.conditions if one.type == "Prefetched"), None)


def _why_left(copy: Copy, node: NodeState) -> str:
    if copy.version.in_use:
        return "in use"
    return "it was not removed in time" if node.ready else "the node is not ready"


def _is_stuck(copy: Copy, node: NodeState) -> bool:
    return node.ready and not copy.version.in_use
