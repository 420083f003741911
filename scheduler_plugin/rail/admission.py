"""AdmissionReviews and their answers. The vote is taken in the event loop, which owns the view; the API is asked in
threads, and the object that is made there is the lock between replicas.
"""

import asyncio
import base64
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import orjson

from dsagent.api.v1alpha1.meta import ObjectMeta, OwnerReference
from dsagent.api.v1alpha1.rail_decision import JobReference, RailDecision, RailDecisionSpec
from dsagent.contract import RESOURCE_SOME_RAIL
from scheduler_plugin.errors import PluginError
from scheduler_plugin.rail.ballots import decide, facts_of
from scheduler_plugin.rail.job import Job, Owner, controller_of, job_of, topmost
from scheduler_plugin.rail.mutation import (
    Refusal,
    for_our_scheduler,
    patch,
    wants_some_rail,
    with_class,
    with_decision,
    with_tolerations,
)
from scheduler_plugin.rail.vote import Choice
from scheduler_plugin.state import State

log = logging.getLogger("scheduler_plugin")

Object = Mapping[str, Any]
LONGEST_REASON = 1024  # of a RailDecision


class Decisions(Protocol):
    """The RailDecisions of a cluster, and the owners of pods. All methods raise NoCluster."""

    def find(self, namespace: str, name: str) -> RailDecision | None:
        """One, if it is there."""

    def make(self, decision: RailDecision) -> RailDecision:
        """Makes it, unless another one of its name is there; returns the one that is there then."""

    def read_owner(self, namespace: str, owner: Owner) -> Object | None:
        """The object that an owner is, or None if it is gone."""


class Unready(Exception):
    """A decision cannot be taken yet."""


class Admission:
    """Answers reviews of pods that are to be made."""

    def __init__(self, state: State, decisions: Decisions) -> None:
        self._state = state
        self._decisions = decisions

    async def rail(self, review: Object) -> Object:
        """The answer for a pod that may want some rail. Raises KeyError, TypeError, ValueError if it is no review."""
        request = review["request"]
        pod = _in_namespace(request["object"], request["namespace"])
        if not wants_some_rail(pod):
            return _answer(review, {})
        try:
            after = await self._with_its_class(pod, dry_run=bool(request.get("dryRun")))
        except Refusal as refusal:
            return _refused(review, 403, "Forbidden", str(refusal))
        except (PluginError, Unready) as error:
            return _refused(review, 503, "ServiceUnavailable", str(error))
        return _patched(review, pod, after)

    async def _with_its_class(self, pod: Object, *, dry_run: bool) -> Object:
        pod = with_tolerations(pod, self._state.settings.rails.toleration_objects)
        job = await asyncio.to_thread(self._job_of, pod)
        if job is None:
            choice = self._decide(pod, facts_of(pod).name)
            log.info("a pod of no job gets %s: %s", choice.resource, choice.reason)
            return with_class(pod, choice.resource)
        pod = with_decision(pod, job.decision)
        namespace = pod["metadata"]["namespace"]
        found = await asyncio.to_thread(self._decisions.find, namespace, job.decision)
        if found is None:
            found = _decision(pod, job, self._decide(pod, job.decision))
            if not dry_run:
                found = await asyncio.to_thread(self._decisions.make, found)
                log.info("%s %s/%s: %s, %s", job.kind, namespace, job.name, found.spec.resource, found.spec.reason)
        return with_class(pod, found.spec.resource)

    def _decide(self, pod: Object, job: str) -> Choice:
        if missing := self._state.unsynced():
            raise Unready(f"cannot choose a rail: not yet listed: {', '.join(missing)}; it is tried again")
        return decide(self._state.view, pod, job, self._state.settings)

    def _job_of(self, pod: Object) -> Job | None:
        owner = controller_of(pod)
        if owner is None:
            return job_of(pod, None)
        return job_of(pod, topmost(owner, partial(self._decisions.read_owner, pod["metadata"]["namespace"])))


def schedule(review: Object) -> Object:
    """The answer for a pod that needs us: our profile and the marker. Raises as Admission.rail."""
    pod = review["request"]["object"]
    return _patched(review, pod, for_our_scheduler(pod))


def _decision(pod: Object, job: Job, choice: Choice) -> RailDecision:
    owner = job.owner
    references = [OwnerReference(**owner._asdict())] if owner else None
    return RailDecision(
        metadata=ObjectMeta(
            name=job.decision,
            namespace=pod["metadata"]["namespace"],
            owner_references=references,
        ),
        spec=RailDecisionSpec(
            job=JobReference(kind=job.kind, name=job.name, uid=job.uid),
            resource=choice.resource,
            count=facts_of(pod).devices.get(RESOURCE_SOME_RAIL, 0),
            votes=choice.votes,
            reason=choice.reason[:LONGEST_REASON],
            nodes=choice.nodes,
            decided=datetime.now(UTC),
        ),
    )


def _in_namespace(pod: Object, namespace: str) -> Object:
    return {**pod, "metadata": {**(pod.get("metadata") or {}), "namespace": namespace}}


def _patched(review: Object, before: Object, after: Object) -> Object:
    steps = patch(before, after)
    if not steps:
        return _answer(review, {})
    return _answer(review, {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(steps)).decode()})


def _refused(review: Object, code: int, reason: str, message: str) -> Object:
    status = {"code": code, "reason": reason, "message": f"dsagent: {message}"}
    return _answer(review, {"allowed": False, "status": status})


def _answer(review: Object, response: Object) -> Object:
    response = {"uid": review["request"]["uid"], "allowed": True, **response}
    return {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
