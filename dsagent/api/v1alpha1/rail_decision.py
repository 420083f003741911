"""RailDecision: the class of GPUs that was chosen for all pods of one job."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from dsagent.api.v1alpha1.meta import AGE, Column, Count, Kind, KubeModel, ObjectMeta, Time
from dsagent.contract import API_VERSION


class JobReference(KubeModel):
    """The job that was decided for."""

    kind: Annotated[str, Field(description="What it is: a label's key, or the kind of its topmost controller.")]
    name: Annotated[str, Field(description="Its name.", max_length=253)]
    uid: Annotated[str, Field(description="Its UID; empty where only a label names the job.", max_length=253)] = ""


class RailDecisionSpec(KubeModel):
    """What was decided, and why. It never changes; deciding anew makes another object."""

    job: Annotated[JobReference, Field(description="The job that was decided for.")]
    resource: Annotated[
        str, Field(description="The class that all its pods get, such as dsagent.io/gpu-roce1.", max_length=317)
    ]
    count: Annotated[Count, Field(description="How many GPUs the pod that was asked about wants.")] = 0
    votes: Annotated[
        Mapping[str, Count], Field(description="How many votes each class had, by its name.", max_length=256)
    ] = {}
    reason: Annotated[str, Field(description="Why this class, in a sentence.", max_length=1024)] = ""
    nodes: Annotated[
        Sequence[str], Field(description="The first nodes that voted for it, at most 20.", max_length=20)
    ] = ()
    decided: Annotated[Time | None, Field(description="When.")] = None


RAIL_DECISION = Kind(
    "RailDecision",
    "raildecisions",
    "raild",
    namespaced=True,
    columns=(
        Column("Job", "string", ".spec.job.name", "The job that was decided for."),
        Column("Class", "string", ".spec.resource", "The class that all its pods get."),
        AGE,
        Column("Reason", "string", ".spec.reason", "Why this class.", priority=1),
    ),
)


class RailDecision(KubeModel):
    """The class of GPUs that was chosen for all pods of one job. Its name is made from the job, so that whoever makes
    it first has decided; the controller deletes it when the job is gone.
    """

    api_version: Literal["dsagent.io/v1alpha1"] = API_VERSION
    kind: Literal["RailDecision"] = "RailDecision"
    metadata: ObjectMeta
    spec: RailDecisionSpec
