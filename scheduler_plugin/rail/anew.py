"""Deciding anew: a job none of whose pods has a node gets another class, by replacing its pods.

The resources of a pod never change, so its pods are evicted, and their controller makes others. Switched off unless the
settings say otherwise. The deletion of the decision, by its UID, is the lock between replicas.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from dsagent.api.v1alpha1.rail_decision import RailDecision
from dsagent.contract import RESOURCE_SOME_RAIL
from scheduler_plugin.errors import PluginError
from scheduler_plugin.rail.ballots import free_choice, has_room
from scheduler_plugin.rail.job import controller_of
from scheduler_plugin.rail.mutation import with_amounts_of
from scheduler_plugin.state import State

log = logging.getLogger("scheduler_plugin")

Object = Mapping[str, Any]
LOOK_SECONDS = 30.0
NOT_BEFORE = timedelta(minutes=10)  # after the last decision


class Replacing(Protocol):
    """What replacing pods needs of a cluster. All methods raise NoCluster."""

    def all(self) -> Sequence[RailDecision]:
        """All decisions."""

    def pods(self, decision: RailDecision) -> Sequence[Object]:
        """The pods of its job, as they are now."""

    def remove(self, decision: RailDecision) -> bool:
        """Deletes this decision and no later one of its name; whether it was there."""

    def evict(self, pod: Object) -> None:
        """Evicts this pod and no later one of its name; one that is gone is no failure."""


async def keep_deciding(state: State, replacing: Replacing) -> None:
    """Looks at all decisions again and again, while the settings say so."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if state.settings.rails.decide_anew and not state.unsynced():
            try:
                await look(state, replacing, datetime.now(UTC))
            except PluginError as error:
                log.warning("deciding anew: %s", error)


async def look(state: State, replacing: Replacing, now: datetime) -> None:
    """Replaces the pods of jobs that would get another class now, and those that an earlier look left."""
    for decision in await asyncio.to_thread(replacing.all):
        namespace, name = decision.metadata.namespace or "", decision.metadata.name
        known = state.view.pods_of(namespace, name)
        if not known or any(pod.node for pod in known):
            continue
        pods = await asyncio.to_thread(replacing.pods, decision)
        if not replaceable(pods):
            continue
        stale = [pod for pod in pods if not asks_for(pod, decision.spec.resource)]
        if not stale and (better := _better(state, decision, pods[0], now)):
            if not await asyncio.to_thread(replacing.remove, decision):
                continue
            log.info("%s/%s is decided anew: %s has room, %s has none", namespace, name, better, decision.spec.resource)
            stale = list(pods)
        for pod in stale:
            await asyncio.to_thread(replacing.evict, pod)


def replaceable(pods: Sequence[Object]) -> bool:
    """Whether all pods of a job may be made anew: none has or had a node, and a controller makes each again."""
    return bool(pods) and all(not pod["spec"].get("nodeName") and controller_of(pod) for pod in pods)


def asks_for(pod: Object, resource: str) -> bool:
    """Whether a container asks for this class."""
    containers = (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
    return any(resource in ((one.get("resources") or {}).get("limits") or {}) for one in containers)


def _better(state: State, decision: RailDecision, pod: Object, now: datetime) -> str | None:
    """Another class that has room now, when the one that was chosen has none and was chosen long enough ago."""
    if decision.spec.decided is None or now - decision.spec.decided < NOT_BEFORE:
        return None
    asked = with_amounts_of(pod, decision.spec.resource, RESOURCE_SOME_RAIL)
    if has_room(state.view, asked, decision.spec.resource, state.settings):
        return None
    choice = free_choice(state.view, asked, decision.metadata.name, state.settings)
    return choice.resource if choice else None
