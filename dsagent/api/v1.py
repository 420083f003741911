"""The agent's HTTP API, version 1: what requests carry. Unknown fields are refused.

Answers are `dsagent.core.tasks.TaskInfo` and the results of the verbs, `dsagent.service.results`, as JSON. Sizes are
bytes, rates bytes a second, times RFC 3339 in UTC. An error is an RFC 9457 problem, `dsagent.core.problem.Problem`.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

MAX_DATASETS = 64
MAX_TEXT = 4096
MAX_PAIRS = 32

Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, pattern=r"^[^\x00-\x1f\x7f]*$")]
Label = Annotated[str, Field(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")]
TaskId = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$")]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400, allow_inf_nan=False)]


class Model(BaseModel):
    """A request or an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskOwner(Model):
    """Whose task it is: a pod, by namespace, name and UID, or a person."""

    namespace: Label = "_local"
    name: Label
    uid: Label = ""


class Options(Model):
    """How a dataset is made present: the options of `dsctl cache`. `storage` opens the source and is no secret."""

    check: Literal["fingerprint", "content", "never"] = "fingerprint"
    replace_source: bool = False
    skip_special: bool = False
    pack_to: Text | None = None
    storage: Annotated[dict[Label, Label], Field(max_length=MAX_PAIRS)] = {}


class Place(Model):
    """A source or store. `credentials` are write-only: they are held in memory and shown nowhere."""

    source: Text
    storage: Annotated[dict[Label, Label], Field(max_length=MAX_PAIRS)] = {}
    credentials: Annotated[dict[Label, SecretStr], Field(max_length=MAX_PAIRS)] = {}


class DatasetRequest(Model):
    """One dataset of a task. `name` defaults to the store's, or to the source's last part. `cluster`: it is the
    ClusterDataset of that name, which says itself where it is and who may use it.
    """

    name: Label | None = None
    cluster: bool = False
    source: Text
    version: Label | None = None
    options: Options = Options()
    credentials: Annotated[dict[Label, SecretStr], Field(max_length=MAX_PAIRS)] = {}


class TaskRequest(Model):
    """All datasets of one pod. `keep_seconds`: how long they are kept once they are ready; None: until the task is
    deleted. A prefetch waits for all who need their data now. `on_failure`: `source` for a pod that reads its sources
    itself if need be, so that it can start without the data.
    """

    owner: TaskOwner
    datasets: Annotated[Sequence[DatasetRequest], Field(min_length=1, max_length=MAX_DATASETS)]
    keep_seconds: Seconds | None = None
    prefetch: bool = False
    on_failure: Literal["fail", "source"] = "fail"


class PlanRequest(Model):
    """Asks what a caching would do, without doing it."""

    dataset: DatasetRequest


class VerifyRequest(Model):
    """Asks for a re-reading of `name` or `name@version`; `repair` fetches bad files anew."""

    reference: Label
    repair: bool = False
    storage: Annotated[dict[Label, Label], Field(max_length=MAX_PAIRS)] = {}
    credentials: Annotated[dict[Label, SecretStr], Field(max_length=MAX_PAIRS)] = {}


class EvictRequest(Model):
    """Asks for one dataset's eviction, or for as many as it takes until `need` bytes are free."""

    reference: Label | None = None
    need: Annotated[int, Field(gt=0, lt=1 << 60)] | None = None
    force: bool = False
    dry_run: bool = False


class DiffRequest(Model):
    """Asks by which files `b` differs from `a`; each is a cached dataset, a source or a store."""

    a: Place
    b: Place


class LeaseRequest(Model):
    """Asks for a lease on `name` or `name@version`: for `seconds`, or, if that is None, for a process of this
    machine, which locks the file that the answer names and then confirms.
    """

    reference: Label
    owner: Label
    seconds: Seconds | None = 7200


class RenewRequest(Model):
    """Lets a lease end `seconds` from now; `owner` says whose, where a dataset has several."""

    owner: Label | None = None
    seconds: Seconds = 7200


class LimitsRequest(Model):
    """What may be changed while the agent runs. `bandwidth`: bytes a second from all sources together, 0 for no
    limit.
    """

    bandwidth: Annotated[int, Field(ge=0, lt=1 << 60)]
