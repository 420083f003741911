"""What the agent can be told: by flags, DSAGENT_* variables and a YAML file, in this order."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dsagent.core.errors import UsageError
from dsagent.core.quantities import parse_duration, parse_size
from dsagent.service.settings import default_root
from dsagent.wiring import default_workers

DEFAULT_SOCKET = "/run/dsagent/agent.sock"
DEFAULT_KUBELET_ROOT = "/var/lib/kubelet"
FLAG_OF_FILE = "--config"
FILES_A_WORKER = 40
BYTES_A_WORKER = 128 << 20

_SWITCHES = {"True": "on", "False": "off"}  # what YAML makes of these words


class AgentSettings(NamedTuple):
    """The settings of an agent: FIELDS says what each means. `origins` names for each field its flag, variable, file
    or "default".
    """

    root: Path
    capacity: int | None
    keep_free: int | None
    socket: str
    tcp: str | None
    tls_cert: str | None
    tls_key: str | None
    tokens: str | None
    peers: Sequence[int]
    sources: Sequence[str]
    workers: int
    tasks: int
    bandwidth: int
    open_files: int
    memory: int
    drain: float
    kubernetes: bool
    node: str | None
    kubelet_root: str
    administrator: str | None
    log_format: str
    origins: Mapping[str, str]

    def lines(self) -> list[str]:
        """One line a setting, with its origin."""
        return [f"{name} = {getattr(self, name)} ({origin})" for name, origin in self.origins.items()]

    @property
    def slots(self) -> int:
        """Jobs at work at once: the least that workers, open files and memory allow, and at least one."""
        return max(1, min(self.workers, self.open_files // FILES_A_WORKER, self.memory // BYTES_A_WORKER))


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise UsageError("use", text, "it is no whole number")
    return int(text)


def _positive(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise UsageError("use", text, "it is less than 1")
    return number


def _bandwidth(text: str) -> int:
    return 0 if text == "0" else parse_size(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_whole(part) for part in text.split(",") if part)


def _texts(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _format(text: str) -> str:
    if text not in ("json", "text"):
        raise UsageError("use", text, "it is neither json nor text")
    return text


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise UsageError("use", text, "it is neither on nor off")
    return text == "on"


def _root(text: str) -> Path:
    return Path(os.path.abspath(text))


class Field(NamedTuple):
    """How a setting's text is read, its default, and what it means: unit, default and reason."""

    read: Callable[[str], Any]
    default: Any
    meaning: str


FIELDS: Mapping[str, Field] = {
    "root": Field(_root, None, "The cache's folder [default: as for dsctl]."),
    "capacity": Field(parse_size, None, "SIZE that all versions may take [default: no limit of its own]."),
    "keep_free": Field(parse_size, None, "SIZE to leave free [default: 15 %, as kubelet removes images below that]."),
    "socket": Field(os.path.abspath, DEFAULT_SOCKET, f"Path of the Unix socket [default: {DEFAULT_SOCKET}]."),
    "tcp": Field(str, None, "HOST:PORT to serve over TLS as well [default: none, as pods use the socket]."),
    "tls_cert": Field(str, None, "PEM file with the certificate chain for --tcp [default in Kubernetes: its own]."),
    "tls_key": Field(str, None, "PEM file with the certificate's key for --tcp."),
    "tokens": Field(str, None, "YAML file that says whose each token is [default: none, so only peers are served]."),
    "peers": Field(_numbers, (), "User ids of this host, with commas, that administrate over the socket beside root."),
    "sources": Field(
        _texts,
        (),
        "URL prefixes and folders, with commas, that sources and stores may be in [default: all for administrators; "
        "for pods remote URLs and no folder, because the agent can read more of the host than they may].",
    ),
    "workers": Field(_positive, None, "Worker processes at work at once [default: one a CPU, up to 16]."),
    "tasks": Field(_positive, 16, "Tasks whose data come at once [default: 16; more share the same disk]."),
    "bandwidth": Field(_bandwidth, 0, "SIZE a second from all sources together [default: 0, no limit]."),
    "open_files": Field(
        _positive, 4096, f"Open files of all workers; one at work takes up to {FILES_A_WORKER} [default: 4096]."
    ),
    "memory": Field(
        parse_size,
        2 << 30,
        f"SIZE of all workers together; one at work takes up to {BYTES_A_WORKER >> 20} MiB [default: 2 GiB].",
    ),
    "drain": Field(
        parse_duration, 20.0, "DURATION that flights go on after SIGTERM [default: 20s, as kubelet kills after 30]."
    ),
    "kubernetes": Field(_switch, False, "on: follow this node's pods and the cluster's Datasets [default: off]."),
    "node": Field(str, None, "This node's name in Kubernetes; with --kubernetes on it is needed."),
    "kubelet_root": Field(
        os.path.abspath,
        DEFAULT_KUBELET_ROOT,
        "Kubelet's folder, whose mounts say what pods still use; in a container at the same path, with "
        f"mountPropagation HostToContainer [default: {DEFAULT_KUBELET_ROOT}].",
    ),
    "administrator": Field(
        str,
        None,
        "NAMESPACE:NAME of the service account whose tokens for this node administrate [default: none; others can "
        "be in --tokens].",
    ),
    "log_format": Field(_format, "json", "json or text [default: json]."),
}


def load_agent_settings(flags: Mapping[str, str | None], environ: Mapping[str, str], file: str | None) -> AgentSettings:
    """Settings from flags, else variables, else the file, else defaults.

    Raises UsageError for a value that is none, a field that the file should not have, and TCP without TLS.
    """
    document = _read(file) if file else {}
    if unknown := sorted(document.keys() - FIELDS.keys()):
        raise UsageError("use", f"{FLAG_OF_FILE} {file}", f"it has unknown settings: {', '.join(unknown)}")
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, field in FIELDS.items():
        found = _find(name, flags, environ, document, file)
        values[name], origins[name] = (field.default, "default") if found is None else _value(field.read, *found)
    values["root"] = values["root"] or Path(default_root(environ))
    values["workers"] = values["workers"] or default_workers()
    certificate = (values["tls_cert"], values["tls_key"])
    if values["tcp"] and not all(certificate) and (any(certificate) or not values["kubernetes"]):
        raise UsageError("use", f"tcp {values['tcp']}", "TLS is missing", "give --tls-cert and --tls-key as well")
    if values["kubernetes"] and not values["node"]:
        raise UsageError("use", "kubernetes on", "the node's name is missing", "give --node as well")
    return AgentSettings(**values, origins=origins)


def _find(
    name: str,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    document: Mapping[str, str],
    file: str | None,
) -> tuple[str, str] | None:
    """The text of a setting, and where it is from."""
    if (given := flags.get(name)) is not None:
        return given, f"--{name.replace('_', '-')}"
    if variable := environ.get(f"DSAGENT_{name.upper()}"):
        return variable, f"DSAGENT_{name.upper()}"
    return (document[name], str(file)) if name in document else None


def _value(read: Callable[[str], Any], text: str, origin: str) -> tuple[Any, str]:
    try:
        if not text:
            raise UsageError("use", origin, "its value is empty")
        return read(text), origin
    except UsageError as error:
        raise UsageError("use", f"{origin} {text}", error.cause, error.hint) from error


def _read(file: str) -> dict[str, str]:
    import yaml  # noqa: PLC0415 - not everyone has a file

    try:
        document = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError("read", f"{FLAG_OF_FILE} {file}", str(error)) from error
    if not isinstance(document, dict):
        raise UsageError("read", f"{FLAG_OF_FILE} {file}", "it is no mapping of settings")
    return {
        str(name): ",".join(map(str, value)) if isinstance(value, list) else _SWITCHES.get(str(value), str(value))
        for name, value in document.items()
    }
