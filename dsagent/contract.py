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


ENV_ROOT = "DSAGENT_ROOT"
ENV_CAPACITY = "DSAGENT_CAPACITY"
ENV_KEEP_FREE = "DSAGENT_KEEP_FREE"
ENV_DATASET_PREFIX = "DSAGENT_DATASET_"
