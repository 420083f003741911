"""Which job a pod belongs to."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dsagent.contract import ANNOTATION_JOB

Object = Mapping[str, Any]

# JobSet (which Kubeflow's trainer uses), Kubeflow's training and MPI operators, Volcano, older MPI operators.
FRAMEWORK_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "mpi-job-name",
)
# What other controllers make for their jobs; every other kind is the job itself.
MADE_BY_OTHERS = {
    ("batch/v1", "Job"): "jobs",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
}
HIGHEST = 5  # owners above each other
_NAME = 40  # letters of the job's name in that of its decision


class Owner(NamedTuple):
    """An object that controls others."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Job:
    """A job of a namespace. `kind`: the label's key or the kind of the topmost controller; `uid`: of that controller,
    empty where a name alone says which job it is; `owner`: that controller, with which the decision goes.
    """

    kind: str
    name: str
    uid: str = ""
    owner: Owner | None = None

    @property
    def decision(self) -> str:
        """The name of its RailDecision, which is a label's value as well."""
        readable = re.sub(r"[^a-z0-9-]+", "-", self.name.lower())[:_NAME].strip("-") or "job"
        exact = json.dumps([self.kind, self.name, self.uid]).encode()
        return f"{readable}-{hashlib.blake2b(exact, digest_size=8).hexdigest()}"


def controller_of(object_: Object) -> Owner | None:
    """The one that controls an object; raises KeyError."""
    for one in (object_.get("metadata") or {}).get("ownerReferences") or ():
        if one.get("controller"):
            return Owner(one["apiVersion"], one["kind"], one["name"], one["uid"])
    return None


def topmost(owner: Owner, read: Callable[[Owner], Object | None]) -> Owner:
    """The controller above all others. `read` gives an object of MADE_BY_OTHERS, or None if it is gone. A CronJob is
    above none: each of its Jobs is another job.
    """
    for _ in range(HIGHEST):
        if (owner.api_version, owner.kind) not in MADE_BY_OTHERS:
            break
        found = read(owner)
        above = controller_of(found) if found and found["metadata"].get("uid") == owner.uid else None
        if above is None or above.kind == "CronJob":
            break
        owner = above
    return owner


def job_of(pod: Object, top: Owner | None) -> Job | None:
    """The job of a pod whose topmost controller is known, or None of a pod that nobody else belongs to."""
    metadata = pod.get("metadata") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    if named := annotations.get(ANNOTATION_JOB) or labels.get(ANNOTATION_JOB):
        return Job(ANNOTATION_JOB, named)  # pods of several controllers may say it
    uid = top.uid if top else ""
    for key in FRAMEWORK_LABELS:
        if named := labels.get(key):
            return Job(key, named, uid, top)
    return Job(top.kind, top.name, uid, top) if top else None
