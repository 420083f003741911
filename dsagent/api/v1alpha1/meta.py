"""What all objects have: metadata, conditions, selectors; and how a kind is presented."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


def as_time(moment: datetime) -> str:
    """A time as metav1.Time is written: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[AwareDatetime, PlainSerializer(as_time, when_used="json")]


class KubeModel(BaseModel):
    """An object or a part of one; its fields are camelCase on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    def document(self) -> dict[str, Any]:
        """As it is sent: without what is None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class OwnerReference(KubeModel):
    """The object that this one belongs to and goes with."""

    api_version: str
    kind: str
    name: str
    uid: str


class ObjectMeta(KubeModel):
    """The part of metav1.ObjectMeta that is used here."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    finalizers: Sequence[str] | None = None
    owner_references: Sequence[OwnerReference] | None = None


class Condition(KubeModel):
    """One thing that is so or not, as metav1.Condition."""

    type: Annotated[str, Field(description="What is said to be so, in CamelCase.", max_length=316)]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="Whether it is.")]
    observed_generation: Annotated[
        Count | None, Field(description="The metadata.generation that this was found out for.")
    ] = None
    last_transition_time: Annotated[Time, Field(description="When status last changed.")]
    reason: Annotated[str, Field(description="Why, in one CamelCase word for programs.", max_length=1024)]
    message: Annotated[str, Field(description="Why, for people.", max_length=32768)]


def set_condition(conditions: Sequence[Condition], new: Condition) -> list[Condition]:
    """The conditions with `new` in place of the one of its type, whose time stays while the status does."""
    found = {one.type: one for one in conditions}
    old = found.get(new.type)
    if old and old.status == new.status:
        new = new.model_copy(update={"last_transition_time": old.last_transition_time})
    found[new.type] = new
    return list(found.values())


class LabelRequirement(KubeModel):
    """One requirement of a selector."""

    key: Annotated[str, Field(description="The label's key.", min_length=1)]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"], Field(description="How values are compared with the label's.")
    ]
    values: Annotated[
        Sequence[str] | None, Field(description="For In and NotIn: the values; otherwise to be left out.")
    ] = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil it, as Kubernetes decides: NotIn is true of a label that is not there."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        among = self.key in labels and labels[self.key] in (self.values or ())
        return among == (self.operator == "In")


class LabelSelector(KubeModel):
    """Which labels: all that is named must hold; empty matches everything."""

    match_labels: Annotated[
        Mapping[str, str] | None, Field(description="Labels with exactly these values.", max_length=64)
    ] = None
    match_expressions: Annotated[
        Sequence[LabelRequirement] | None, Field(description="Requirements beside matchLabels.", max_length=64)
    ] = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are selected."""
        wanted = (self.match_labels or {}).items()
        return wanted <= labels.items() and all(one.matches(labels) for one in self.match_expressions or ())


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; one with a priority above 0 is for `-o wide`."""

    name: str
    type: Literal["string", "integer", "date"]
    path: str
    description: str
    priority: int = 0


@dataclass(frozen=True)
class Kind:
    """How a kind is presented."""

    name: str
    plural: str
    short: str
    namespaced: bool
    columns: Sequence[Column]


AGE = Column("Age", "date", ".metadata.creationTimestamp", "How long it has been there.")
