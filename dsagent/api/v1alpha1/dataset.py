"""Dataset and ClusterDataset: where data are, who may use them, and what has become of them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from dsagent.api.v1alpha1.meta import AGE, Column, Condition, Count, Kind, KubeModel, LabelSelector, ObjectMeta, Time
from dsagent.contract import API_VERSION, CLUSTER_NAMESPACE

NAME_PATTERN = r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"
SOURCE_PATTERN = r"^(/|[a-z][a-z0-9+.-]*://)[^\x00-\x20\x7f]*$"
DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?[smhd]?$"

Phase = Literal["Pending", "Caching", "Ready", "Failed", "Deleting"]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/")]
Source = Annotated[str, Field(min_length=1, max_length=4096, pattern=SOURCE_PATTERN)]


def _rules(*rules: tuple[str, str]) -> dict[str, JsonValue]:
    """CEL rules as a part of a schema, each with what is said when it does not hold; `self` is what they stand at."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}


_NAME_RULES = _rules(("self.metadata.name.size() <= 63", "a dataset's name has at most 63 characters"))


class SecretReference(KubeModel):
    """A Secret in the Dataset's namespace."""

    name: Annotated[ObjectName, Field(description="The Secret's name.")]


class Options(KubeModel):
    """How the source is read."""

    storage: Annotated[
        Mapping[str, Annotated[str, Field(max_length=4096)]],
        Field(
            description="Options that open the source and are no secret, such as endpoint_url and region for S3, "
            "or user for HDFS. Credentials belong into the Secret.",
            max_length=32,
            json_schema_extra=_rules(
                (
                    "self.all(key, !key.matches('(?i)secret|password|token'))",
                    "credentials do not belong into the options; name a Secret in secretRef",
                )
            ),
        ),
    ] = {}
    replace_source: Annotated[
        bool,
        Field(
            description="Whether data that this name has on a node from another source may be replaced, even if they "
            "differ. Otherwise a changed source is an error where the old data still are."
        ),
    ] = False
    skip_special: Annotated[
        bool, Field(description="Whether sockets, pipes and devices in the source are left out. Otherwise an error.")
    ] = False


class NfsMount(KubeModel):
    """An NFS export."""

    server: Annotated[str, Field(description="Its server, by name or address.", min_length=1, max_length=253)]
    path: Annotated[AbsolutePath, Field(description="The exported path.")]


class HostPathMount(KubeModel):
    """A folder of the node."""

    path: Annotated[AbsolutePath, Field(description="Its path; it must be there.")]


class ClaimMount(KubeModel):
    """A PersistentVolumeClaim."""

    claim_name: Annotated[ObjectName, Field(description="Its name, in the pod's namespace.")]


class ClusterMount(
    KubeModel,
    json_schema_extra=_rules(("has(self.nfs) != has(self.hostPath)", "give exactly one of nfs, hostPath")),
):
    """How a pod mounts the source itself: exactly one of these."""

    nfs: Annotated[NfsMount | None, Field(description="An NFS export that holds the source.")] = None
    host_path: Annotated[HostPathMount | None, Field(description="A folder of every node that holds the source.")] = (
        None
    )


class Mount(
    ClusterMount,
    json_schema_extra=_rules(
        (
            "[has(self.nfs), has(self.hostPath), has(self.persistentVolumeClaim)].exists_one(given, given)",
            "give exactly one of nfs, persistentVolumeClaim, hostPath",
        )
    ),
):
    """How a pod mounts the source itself: exactly one of these."""

    persistent_volume_claim: Annotated[
        ClaimMount | None, Field(description="A claim that holds the source, mounted read-only.")
    ] = None


class Prefetch(
    KubeModel,
    json_schema_extra=_rules(("has(self.nodes) || has(self.nodeSelector)", "give nodes, nodeSelector or both")),
):
    """Where the dataset is to be before any pod asks."""

    nodes: Annotated[
        int | None,
        Field(description="On how many nodes. Without it, on all that nodeSelector matches.", ge=1, le=100_000),
    ] = None
    node_selector: Annotated[
        LabelSelector | None, Field(description="On which nodes, by their labels. Without it, on any.")
    ] = None
    until: Annotated[
        Time | None,
        Field(description="Until when it is kept there though nobody uses it. Without it, as long as this is set."),
    ] = None


class Specification(
    KubeModel,
    json_schema_extra=_rules(
        (
            "!self.source.matches('^[^/]+://[^/]*:[^/]*@')",
            "credentials do not belong into the source; name a Secret in secretRef",
        ),
        ("!self.source.matches('(^|/)[.][.](/|$)')", "the source has a .. in it"),
        ("!has(self.packTo) || self.packTo != self.source", "packTo is the source itself; give another place"),
    ),
):
    """Where the data are, and how they are to be had."""

    source: Annotated[
        Source,
        Field(
            description="Where the data are: an absolute path that the agents can see, such as one on NFS or Lustre, "
            "or a URL: s3://bucket/prefix, webhdfs://namenode:9870/path, or what fsspec knows. If a packed store is "
            "there (dsctl pack), its current version is the dataset."
        ),
    ]
    options: Annotated[Options | None, Field(description="How the source is read.")] = None
    check: Annotated[
        Literal["fingerprint", "content", "never"],
        Field(
            description="How a pod's start finds out whether data on the node are still what the source has. "
            "fingerprint: by listing it (sizes, times, ETags). content: by reading all of it. never: not at all; "
            "what is on the node is used."
        ),
    ] = "fingerprint"
    max_age: Annotated[
        str | None,
        Field(
            description="How long such a comparison holds, such as 90s, 15m, 2h or 7d: a pod that starts within it "
            "uses what is on its node, and prefetched data are compared and updated as often. Without it, each start "
            "compares, and prefetched data are fetched once.",
            max_length=30,
            pattern=DURATION_PATTERN,
        ),
    ] = None
    pack_to: Annotated[
        Source | None,
        Field(
            description="A store, path or URL, that the first node which reads the source packs it into as it goes, "
            "so that the next nodes fetch large bundles instead of small files."
        ),
    ] = None
    prefetch: Annotated[Prefetch | None, Field(description="Where it is to be before any pod asks.")] = None


class DatasetSpec(Specification):
    """Where the data are, and how they are to be had."""

    secret_ref: Annotated[
        SecretReference | None,
        Field(
            description="A Secret of this namespace with the source's credentials, by the names of environment "
            "variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if there is one, AWS_SESSION_TOKEN."
        ),
    ] = None
    mount: Annotated[
        Mount | None,
        Field(
            description="How a pod mounts the source itself, for dsagent.io/mode: local and dsagent.io/on-failure: "
            "source. Without it pods that ask for these are refused."
        ),
    ] = None


class ClusterSecretReference(SecretReference):
    """A Secret that agents read; pods never see it."""

    namespace: Annotated[
        ObjectName, Field(description="Its namespace; one of the chart's secretNamespaces, or no agent may read it.")
    ]


class ClusterDatasetSpec(Specification):
    """Where the data are, how they are to be had, and who may use them."""

    secret_ref: Annotated[
        ClusterSecretReference | None,
        Field(
            description="A Secret with the source's credentials, by the names of environment variables: "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if there is one, AWS_SESSION_TOKEN."
        ),
    ] = None
    mount: Annotated[
        ClusterMount | None,
        Field(
            description="How a pod mounts the source itself, for dsagent.io/mode: local and dsagent.io/on-failure: "
            "source. Without it pods that ask for these are refused."
        ),
    ] = None
    allowed_namespaces: Annotated[
        LabelSelector | None,
        Field(
            description="Which namespaces' pods may use it, by the namespaces' labels; {} is all of them. Without it, "
            "none. A namespace's own Dataset of the same name comes first."
        ),
    ] = None


class PrefetchStatus(KubeModel):
    """What the controller decided about spec.prefetch: agents of these nodes fetch the dataset and keep it."""

    nodes: Annotated[Sequence[str], Field(description="The nodes that were chosen.", max_length=100_000)] = ()
    ready: Annotated[Count, Field(description="How many of the chosen nodes have the dataset.")] = 0
    renewed: Annotated[
        Time | None, Field(description="Agents compare their copy with the source once after this time.")
    ] = None


class DatasetStatus(KubeModel):
    """What has become of it, as the controller sees it."""

    observed_generation: Annotated[
        Count | None, Field(description="The metadata.generation that this is the status of.")
    ] = None
    phase: Annotated[
        Phase | None,
        Field(
            description="Pending: on no node yet. Caching: a node fetches it, none has it. Ready: a node has it whole "
            "and verified. Failed: the last attempt failed, and no node has it. Deleting: copies are being removed."
        ),
    ] = None
    version: Annotated[
        str | None, Field(description="The content digest of what the source was last seen to have.")
    ] = None
    files: Annotated[Count | None, Field(description="How many files status.version has.")] = None
    bytes: Annotated[Count | None, Field(description="Bytes of the contents of its files.")] = None
    size: Annotated[str | None, Field(description="status.bytes for people, such as 147 GB.")] = None
    node_count: Annotated[
        Count | None, Field(description="On how many nodes status.version is whole and verified.")
    ] = None
    nodes: Annotated[
        Sequence[str], Field(description="Nodes that have status.version, the first 100 by name.", max_length=100)
    ] = ()
    prefetch: Annotated[PrefetchStatus | None, Field(description="What was decided about spec.prefetch.")] = None
    conditions: Annotated[
        Sequence[Condition],
        Field(
            description="Cached: a node has status.version. Prefetched: all chosen nodes have it.",
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


_COLUMNS = (
    Column("Version", "string", ".status.version", "The content digest of what the source was last seen to have."),
    Column("Files", "integer", ".status.files", "How many files that version has."),
    Column("Size", "string", ".status.size", "Bytes of the contents of its files."),
    Column("Nodes", "integer", ".status.nodeCount", "On how many nodes it is."),
    Column("Phase", "string", ".status.phase", "Pending, Caching, Ready, Failed or Deleting."),
    AGE,
    Column("Source", "string", ".spec.source", "Where it comes from.", priority=1),
)
DATASET = Kind("Dataset", "datasets", "dset", namespaced=True, columns=_COLUMNS)
CLUSTER_DATASET = Kind("ClusterDataset", "clusterdatasets", "cdset", namespaced=False, columns=_COLUMNS)


class Dataset(KubeModel, json_schema_extra=_NAME_RULES):
    """A tree of files that pods of its namespace ask for with the annotation dsagent.io/datasets and find, whole and
    verified, on their node's own disk below /datasets.
    """

    api_version: Literal["dsagent.io/v1alpha1"] = API_VERSION
    kind: Literal["Dataset"] = "Dataset"
    metadata: ObjectMeta
    spec: DatasetSpec
    status: DatasetStatus | None = None

    @property
    def cache_namespace(self) -> str:
        """The namespace of its copies on the nodes."""
        return self.metadata.namespace or ""


class ClusterDataset(KubeModel, json_schema_extra=_NAME_RULES):
    """A Dataset for the pods of all namespaces that spec.allowedNamespaces names; nodes hold it once for all."""

    api_version: Literal["dsagent.io/v1alpha1"] = API_VERSION
    kind: Literal["ClusterDataset"] = "ClusterDataset"
    metadata: ObjectMeta
    spec: ClusterDatasetSpec
    status: DatasetStatus | None = None

    @property
    def cache_namespace(self) -> str:
        """The namespace of its copies on the nodes."""
        return CLUSTER_NAMESPACE
