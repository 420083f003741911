"""What the pod's environment tells the client."""

import os
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from dsagent.contract import (
    DEFAULT_AGENT,
    ENV_AGENT,
    ENV_CA_FILE,
    ENV_DATA_DIR,
    ENV_DATASETS,
    ENV_DATASETS_DIR,
    ENV_MODE,
    ENV_ON_FAILURE,
    ENV_POD_NAME,
    ENV_POD_NAMESPACE,
    ENV_POD_UID,
    ENV_ROOT,
    ENV_SOURCE_DIR,
    ENV_TIMEOUT,
    ENV_TOKEN_FILE,
    ExitCode,
)
from dsagent.entrypoints.init.datasets import Wanted, parse_datasets
from dsagent.entrypoints.init.failure import Failure
from dsagent.entrypoints.init.quantities import parse_duration

DEFAULT_DATASETS_DIR = "/datasets"
DEFAULT_DATA_DIR = "/run/dsagent/data"
# Some TB at 1 GB/s. What is missing then is not lost: the next start of the container goes on with it.
DEFAULT_TIMEOUT = 7200.0
_UID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_HTTPS = re.compile(r"https://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})/?")
_LONGEST_SOCKET = 107  # bytes, of Linux' sockaddr_un
_FIELDS_OF_POD = {ENV_POD_UID: "metadata.uid", ENV_POD_NAME: "metadata.name", ENV_POD_NAMESPACE: "metadata.namespace"}


class Address(NamedTuple):
    """Where the agent is: a socket's path, or host and port for https."""

    text: str
    socket: str = ""
    host: str = ""
    port: int = 0


class Pod(NamedTuple):
    """Who asks. The uid is the task's id."""

    uid: str
    name: str
    namespace: str


class Settings(NamedTuple):
    """The settings. Paths are as this container sees them."""

    datasets: tuple[Wanted, ...]
    mode: Literal["cache", "local"]
    on_failure: Literal["fail", "source"]
    datasets_dir: str
    """Where the job finds each dataset by its name."""
    source_dir: str | None
    """Where the sources are mounted, by name. None: a source that is a path is mounted at that path."""
    data_dir: str
    """Where the job's containers have the cached trees mounted, by name."""
    data_dir_given: bool
    """Whether `data_dir` was set: then links lead there even if this container does not see it."""
    root: str | None
    """Where this container sees the cache's root. None: where the node does."""
    agent: Address
    token_file: str | None
    ca_file: str | None
    timeout: float
    """Seconds until the client gives up."""
    pod: Pod


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings from the environment; an empty variable counts as unset. Raises Failure, with exit code 2."""
    mode: Literal["cache", "local"] = "local" if _one_of(environ, ENV_MODE, ("cache", "local")) == "local" else "cache"
    source = _one_of(environ, ENV_ON_FAILURE, ("fail", "source")) == "source"
    address = _address(environ)
    return Settings(
        datasets=parse_datasets(_datasets(environ), environ),
        mode=mode,
        on_failure="source" if source else "fail",
        datasets_dir=_path(environ, ENV_DATASETS_DIR) or DEFAULT_DATASETS_DIR,
        source_dir=_path(environ, ENV_SOURCE_DIR),
        data_dir=_path(environ, ENV_DATA_DIR) or DEFAULT_DATA_DIR,
        data_dir_given=bool(environ.get(ENV_DATA_DIR)),
        root=_path(environ, ENV_ROOT),
        agent=address,
        token_file=_path(environ, ENV_TOKEN_FILE),
        ca_file=_path(environ, ENV_CA_FILE),
        timeout=_timeout(environ),
        pod=Pod("", "", "") if mode == "local" else _pod(environ),
    )


def bad_setting(variable: str, cause: str, instead: str) -> Failure:
    """A setting that cannot be meant: which, why, and what to write."""
    return Failure(ExitCode.USAGE, f"{variable} {cause}; {instead}")


def _datasets(environ: Mapping[str, str]) -> str:
    text = environ.get(ENV_DATASETS, "")
    if not text.strip():
        raise bad_setting(ENV_DATASETS, "is not set", "write for example imagenet=s3://bucket/x,coco=/mnt/nfs/coco")
    return text


def _one_of(environ: Mapping[str, str], variable: str, known: tuple[str, str]) -> str:
    value = environ.get(variable) or known[0]
    if value not in known:
        raise bad_setting(variable, f"is {value!r}", f"write {known[0]} or {known[1]}")
    return value


def _path(environ: Mapping[str, str], variable: str) -> str | None:
    value = environ.get(variable)
    if not value:
        return None
    if not os.path.isabs(value):
        raise bad_setting(variable, f"is {value!r}", "write an absolute path")
    return value.rstrip("/") or "/"


def _timeout(environ: Mapping[str, str]) -> float:
    text = environ.get(ENV_TIMEOUT)
    if not text:
        return DEFAULT_TIMEOUT
    seconds = parse_duration(text)
    if not seconds:
        raise bad_setting(ENV_TIMEOUT, f"is {text!r}", "write for example 90s, 15m, 2h or 7d")
    return seconds


def _pod(environ: Mapping[str, str]) -> Pod:
    for variable, field in _FIELDS_OF_POD.items():
        if not environ.get(variable):
            raise bad_setting(
                variable, "is not set", f"add it to the container's env with valueFrom: fieldRef: fieldPath: {field}"
            )
    if not _UID.fullmatch(environ[ENV_POD_UID]):
        raise bad_setting(ENV_POD_UID, "is no UID of a pod", "write up to 64 letters, digits, '.', '_' and '-'")
    return Pod(environ[ENV_POD_UID], environ[ENV_POD_NAME], environ[ENV_POD_NAMESPACE])


def _address(environ: Mapping[str, str]) -> Address:
    text = environ.get(ENV_AGENT) or DEFAULT_AGENT
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "unix" and rest.startswith("/"):
        if len(os.fsencode(rest)) > _LONGEST_SOCKET:
            raise bad_setting(
                ENV_AGENT, f"has a path of more than {_LONGEST_SOCKET} bytes", "mount it at a shorter one"
            )
        return Address(text, socket=rest)
    found = _HTTPS.fullmatch(text)
    if found and int(found[2]) < 65536:
        return Address(text, host=found[1].strip("[]"), port=int(found[2]))
    cause = "is plain http, which would show the token" if scheme == "http" else "is no address of an agent"
    raise bad_setting(ENV_AGENT, cause, f"write {DEFAULT_AGENT}, or https://HOST:PORT")
