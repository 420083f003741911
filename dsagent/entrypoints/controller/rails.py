"""The end of RailDecisions. One that has an owner goes with it, which Kubernetes sees to; one of a job that is only a
name goes when no pod of the job has been there for a while.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dsagent.adapters.kubernetes.watch import Heard, Watch
from dsagent.contract import LABEL_RAIL_DECISION
from dsagent.core.cluster import PODS, RAIL_DECISIONS, Cluster, Object, Scope, metadata
from dsagent.core.errors import DsagentError, NoSuchObject, ObjectConflict

log = logging.getLogger("dsagent")

# A controller makes a failed pod anew within six minutes.
GRACE = timedelta(minutes=10)

Key = tuple[str, str]


@dataclass(frozen=True)
class Decision:
    """A RailDecision, as far as its end is concerned."""

    namespace: str
    name: str
    uid: str
    has_owner: bool

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True)
class JobPod:
    """A pod of a job that a decision is of; the decision's key, or None when the pod has ended."""

    decision: Key | None


def idle_since(
    decisions: Collection[Decision], pods: Collection[JobPod], before: Mapping[Key, datetime], now: datetime
) -> dict[Key, datetime]:
    """The decisions that end by themselves and have no pod, and since when that has been seen."""
    in_use = {pod.decision for pod in pods}
    idle = [one.key for one in decisions if not one.has_owner and one.key not in in_use]
    return {key: before.get(key, now) for key in idle}


class Rails:
    """Deletes decisions whose job is gone."""

    def __init__(self, cluster: Cluster, heard: Callable[[Heard[Any]], None]) -> None:
        self._cluster = cluster
        self._decisions: Watch[Decision] = Watch(cluster, RAIL_DECISIONS, _decision, heard)
        self._pods: Watch[JobPod] = Watch(cluster, PODS, _pod, heard, Scope(labels=LABEL_RAIL_DECISION))
        self.watches: tuple[Watch[Any], ...] = (self._decisions, self._pods)
        self._idle: dict[Key, datetime] = {}

    def look(self, now: datetime) -> None:
        """Deletes what has been idle for long enough."""
        decisions = {one.key: one for one in self._decisions.objects()}
        self._idle = idle_since(decisions.values(), self._pods.objects(), self._idle, now)
        for key, since in self._idle.items():
            if now - since >= GRACE:
                self._delete(decisions[key])

    def _delete(self, decision: Decision) -> None:
        try:
            self._cluster.delete(RAIL_DECISIONS, decision.name, decision.namespace, uid=decision.uid)
            log.info("RailDecision %s/%s: no pod of its job is left", *decision.key)
        except (NoSuchObject, ObjectConflict):
            pass  # it has changed meanwhile, which is heard
        except DsagentError as error:
            log.warning("RailDecision %s/%s: %s", *decision.key, error)


def _decision(document: Object) -> Decision:
    names = metadata(document)
    return Decision(names["namespace"], names["name"], names["uid"], bool(names.get("ownerReferences")))


def _pod(document: Object) -> JobPod:
    names = metadata(document)
    if (document.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return JobPod(None)
    return JobPod((names["namespace"], names["labels"][LABEL_RAIL_DECISION]))
