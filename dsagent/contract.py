"""What other programs may rely on: exit codes and names of environment variables. Standard library only."""

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """Exit codes of every command of the project."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    SOURCE = 3
    STORAGE = 4
    DIGEST = 5
    CHANGED = 6
    AGENT = 7
    IN_USE = 8
    TIMEOUT = 9
    STORE = 10
    PERMISSION = 11
    ROOT = 12
    NOT_FOUND = 13
    INTERRUPTED = 130
    TERMINATED = 143


ENV_ROOT = "DSAGENT_ROOT"
ENV_CAPACITY = "DSAGENT_CAPACITY"
ENV_KEEP_FREE = "DSAGENT_KEEP_FREE"
ENV_DATASET_PREFIX = "DSAGENT_DATASET_"

# Where the node's agent is and how to ask it.
ENV_AGENT = "DSAGENT_AGENT"
ENV_TOKEN_FILE = "DSAGENT_TOKEN_FILE"  # noqa: S105 - a variable's name
ENV_CA_FILE = "DSAGENT_CA_FILE"
DEFAULT_AGENT = "unix:///run/dsagent/agent.sock"
# Through the API server of a cluster, which takes the usual header for itself.
TOKEN_HEADER = "X-Dsagent-Token"  # noqa: S105 - a header's name
AGENT_PORT = 9443
SCHEDULER_PORT = 9444
ENV_CLUSTER_NAMESPACE = "DSAGENT_CLUSTER_NAMESPACE"  # where the chart was installed

# Options that open a source or store and are no secret; every other one is sent to an agent as a credential.
STORAGE_OPTIONS = frozenset(
    {
        *("endpoint_url", "endpoint", "region", "allow_http", "skip_signature", "virtual_hosted_style_request"),
        *("allow_invalid_certificates", "connect_timeout", "timeout", "proxy_url", "profile"),
        *("host", "port", "user", "use_https", "data_proxy"),
    }
)

# What a pod's init client is told besides these.
ENV_DATASETS = "DSAGENT_DATASETS"
ENV_DATASETS_DIR = "DSAGENT_DATASETS_DIR"
ENV_DATA_DIR = "DSAGENT_DATA_DIR"
ENV_SOURCE_DIR = "DSAGENT_SOURCE_DIR"
ENV_MODE = "DSAGENT_MODE"
ENV_ON_FAILURE = "DSAGENT_ON_FAILURE"
ENV_TIMEOUT = "DSAGENT_TIMEOUT"
ENV_POD_UID = "POD_UID"
ENV_POD_NAME = "POD_NAME"
ENV_POD_NAMESPACE = "POD_NAMESPACE"
# The namespace of datasets that the whole cluster shares, ClusterDatasets; no namespace of Kubernetes has such a name.
CLUSTER_NAMESPACE = "_cluster"

# Kubernetes: objects and what a pod says.
API_GROUP = "dsagent.io"
API_VERSION: Final = "dsagent.io/v1alpha1"
ANNOTATION_DATASETS = f"{API_GROUP}/datasets"
ANNOTATION_MODE = f"{API_GROUP}/mode"
ANNOTATION_ON_FAILURE = f"{API_GROUP}/on-failure"
ANNOTATION_TIMEOUT = f"{API_GROUP}/timeout"
ANNOTATION_JOB = f"{API_GROUP}/job"  # which job a pod belongs to, as annotation or label
LABEL_INJECTED = f"{API_GROUP}/injected"  # "true" on every pod that the webhook gave its volumes and containers
LABEL_RAIL_DECISION = f"{API_GROUP}/rail-decision"  # on a job's pods, the name of its RailDecision
FINALIZER = f"{API_GROUP}/cached-copies"
RESOURCE_SOME_RAIL = f"{API_GROUP}/gpu"  # what a pod asks for to get GPUs of the class that is chosen for its job
RESOURCE_MARKER = f"{API_GROUP}/scheduled"  # kube-scheduler asks its extender about pods that request it
SCHEDULER_PROFILE = "dsagent-scheduler"
TOKEN_AUDIENCE = "dsagent"  # noqa: S105 - of the projected token of a pod

# What the webhook puts into a pod. Everything of ours begins with the prefix.
INJECTED_PREFIX = "dsagent-"
WAIT_CONTAINER = "dsagent-wait"
PULL_CONTAINER_PREFIX = "dsagent-pull-"
VOLUME_ROOT = "dsagent-root"
VOLUME_SOCKET = "dsagent-socket"
VOLUME_NO_OP = "dsagent-no-op"
VOLUME_TOKEN = "dsagent-token"  # noqa: S105 - a volume's name
VOLUME_DATASETS = "dsagent-datasets"
VOLUME_SOURCE_PREFIX = "dsagent-source-"
DATASETS_DIR = "/datasets"
INJECTED_DIR = "/run/dsagent"
DATA_DIR = "/run/dsagent/data"
SOURCE_DIR = "/run/dsagent/source"
ROOT_DIR = "/run/dsagent/root"  # in dsagent-wait alone
TOKEN_DIR = "/run/dsagent/token"  # noqa: S105 - a folder

# Below the cache's root on the node, which is the one hostPath of the chart.
SOCKET_IN_ROOT = "run/agent.sock"
NO_OP_IN_ROOT = "bin/noop"  # a static program that ends at once with 0; there before the agent is ready
PODS_IN_ROOT = "pods"

# Reasons of the events on pods and Datasets.
EVENT_CACHE_PULLING = "CachePulling"
EVENT_CACHE_READY = "CacheReady"
EVENT_CACHE_EVICTED = "CacheEvicted"
EVENT_INSUFFICIENT_STORAGE = "InsufficientStorage"
EVENT_DIGEST_MISMATCH = "DigestMismatch"
EVENT_SOURCE_CHANGED = "SourceChanged"
EVENT_CACHE_FAILED = "CacheFailed"
EVENT_CACHE_DELAYED = "CacheDelayed"  # early caching was not possible; the pod's own request comes later
EVENT_NOT_INJECTED = "NotInjected"
# Those of the controller, on Datasets.
EVENT_AVAILABLE = "Available"  # a node has it, and none had
EVENT_UNAVAILABLE = "Unavailable"
EVENT_PREFETCH_STARTED = "PrefetchStarted"
EVENT_PREFETCH_DONE = "PrefetchDone"
EVENT_PREFETCH_SHORT = "PrefetchShort"  # fewer nodes are fit for it than are asked for
EVENT_PREFETCH_RENEWED = "PrefetchRenewed"  # spec.maxAge is over: nodes compare with the source
EVENT_PREFETCH_ENDED = "PrefetchEnded"
EVENT_DELETING = "Deleting"  # its copies are being removed
EVENT_COPIES_LEFT = "CopiesLeft"  # it is gone, some copies are not
