"""NodeDatasetCache: what one node's cache holds and how fast it is, written by the node's agent."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from dsagent.api.v1alpha1.meta import AGE, Column, Condition, Count, Kind, KubeModel, ObjectMeta, Time
from dsagent.contract import API_VERSION

MAX_VERSIONS = 2000

VersionState = Literal["Pending", "Caching", "Ready", "Failed"]


class Amount(KubeModel):
    """A part of the disk."""

    bytes: Annotated[Count, Field(description="Bytes, as they are allocated: whole blocks.")] = 0
    inodes: Annotated[
        Count, Field(description="Inodes: one a file or directory. A capacity of 0: the filesystem has no limit.")
    ] = 0


class Rates(KubeModel):
    """How fast the node was lately, in bytes a second; 0 where nothing was measured yet."""

    source: Annotated[Count, Field(description="Reading from sources, all workers together.")] = 0
    network: Annotated[Count, Field(description="Fetching bundles from stores.")] = 0
    disk: Annotated[Count, Field(description="Writing to the cache's disk.")] = 0
    unpack: Annotated[Count, Field(description="Unpacking bundles.")] = 0


class NodeVersion(KubeModel):
    """A version of a dataset on this node, whole or on its way."""

    namespace: Annotated[
        str, Field(description="The Dataset's namespace; _cluster for a ClusterDataset, _local for no object's.")
    ]
    name: Annotated[str, Field(description="The dataset's name.")]
    version: Annotated[str, Field(description="The content digest; empty while it is not known.")] = ""
    state: Annotated[
        VersionState,
        Field(
            description="Pending: it waits, for space or its turn. Caching: it comes. Ready: it is whole and verified. "
            "Failed: it could not be had; message says why."
        ),
    ]
    files: Annotated[Count, Field(description="Its files; 0 while that is not known.")] = 0
    bytes: Annotated[Count, Field(description="Bytes of its files' contents; 0 while that is not known.")] = 0
    bytes_present: Annotated[Count, Field(description="How many of its bytes are here.")] = 0
    allocated: Annotated[
        Amount | None, Field(description="What it takes on disk, or will take: whole blocks, and inodes.")
    ] = None
    leases: Annotated[Count, Field(description="How many pods, processes and prefetches hold it.")] = 0
    in_use: Annotated[
        bool, Field(description="Whether it must not be evicted: it has leases, or is mounted in a pod.")
    ] = False
    checked: Annotated[
        Time | None, Field(description="When it was last found to be what the source has, at its publish or since.")
    ] = None
    message: Annotated[
        str | None, Field(description="What a version that is not Ready waits for, or why it failed.", max_length=1024)
    ] = None


class NodeDatasetCacheStatus(KubeModel):
    """What the node's cache holds and how fast it is."""

    capacity: Annotated[Amount, Field(description="What all versions together may take.")]
    free: Annotated[Amount, Field(description="What of the capacity is neither taken nor reserved.")]
    reserved: Annotated[Amount, Field(description="What is promised to versions on their way.")]
    rates: Annotated[Rates | None, Field(description="How fast the node was lately, in bytes a second.")] = None
    shown_capacity: Annotated[str | None, Field(description="The capacity for people.")] = None
    shown_free: Annotated[str | None, Field(description="What is free, for people.")] = None
    dataset_count: Annotated[Count, Field(description="How many versions are whole here.")] = 0
    versions: Annotated[
        Sequence[NodeVersion],
        Field(description="The versions, whole or on their way, by namespace and name.", max_length=MAX_VERSIONS),
    ] = ()
    conditions: Annotated[
        Sequence[Condition],
        Field(
            description="Ready: the agent serves. Schedulable: a new dataset could find room.",
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


NODE_DATASET_CACHE = Kind(
    "NodeDatasetCache",
    "nodedatasetcaches",
    "ndc",
    namespaced=False,
    columns=(
        Column("Datasets", "integer", ".status.datasetCount", "How many versions are whole here."),
        Column("Free", "string", ".status.shownFree", "What is neither taken nor reserved."),
        Column("Capacity", "string", ".status.shownCapacity", "What all versions together may take."),
        Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", "Whether the agent serves."),
        AGE,
    ),
)


class NodeDatasetCache(KubeModel):
    """What one node's cache holds and how fast it is. Its name is the node's, whose agent alone writes it."""

    api_version: Literal["dsagent.io/v1alpha1"] = API_VERSION
    kind: Literal["NodeDatasetCache"] = "NodeDatasetCache"
    metadata: ObjectMeta
    status: NodeDatasetCacheStatus | None = None
