"""What other programs may rely on: exit codes and names of environment variables. Standard library only."""

from enum import IntEnum


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
