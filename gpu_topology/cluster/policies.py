"""What kubelet decides by when it admits a pod, from its configuration: that it runs with, or its file."""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_topology.cluster.client import ACCOUNT, SECONDS, ask, token
from gpu_topology.errors import BadFile

KUBELET_PORT = 10_250
_KNOWN: Mapping[str, tuple[str, ...]] = {  # the first is the default
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "cpuManagerPolicy": ("none", "static"),
    "memoryManagerPolicy": ("None", "Static"),
}


@dataclass(frozen=True)
class Policies:
    """Kubelet's policies and their options, in its own words."""

    topology_manager: str = "none"
    scope: str = "container"
    cpu_manager: str = "none"
    memory_manager: str = "None"
    topology_manager_options: tuple[tuple[str, str], ...] = ()
    cpu_manager_options: tuple[tuple[str, str], ...] = ()


def policies_of(configuration: Mapping[str, Any]) -> Policies:
    """From a KubeletConfiguration. Raises ValueError for what is not known here."""
    chosen: list[str] = []
    for name, known in _KNOWN.items():
        value = configuration.get(name) or known[0]
        if value not in known:
            raise ValueError(f"{name} is {value!r}")
        chosen.append(value)
    topology_manager, scope, cpu_manager, memory_manager = chosen
    return Policies(
        topology_manager,
        scope,
        cpu_manager,
        memory_manager,
        _options(configuration, "topologyManagerPolicyOptions"),
        _options(configuration, "cpuManagerPolicyOptions"),
    )


def _options(configuration: Mapping[str, Any], name: str) -> tuple[tuple[str, str], ...]:
    found = configuration.get(name) or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is {found!r}")  # noqa: TRY004 - all that is wrong with it is one error
    return tuple(sorted((str(key), str(value)) for key, value in found.items()))


def read_file(path: Path) -> Policies:
    """From kubelet's file; flags and drop-ins beside it are not seen. Raises BadFile."""
    import yaml  # noqa: PLC0415 - slow to import

    try:
        read = yaml.safe_load(path.read_bytes())
        if not isinstance(read, dict) or read.get("kind") != "KubeletConfiguration":
            raise ValueError("it is no KubeletConfiguration")
        return policies_of(read)
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise BadFile("read kubelet's configuration", str(path), " ".join(str(error).split())) from error


def ask_kubelet(address: str, account: Path = ACCOUNT, port: int = KUBELET_PORT) -> Policies:
    """From the kubelet of this node, at its own port: that needs the right to get nodes/configz and no more, where the
    API server's proxy to it would need nodes/proxy, by which one can run commands in all pods of all nodes.

    Its certificate is one it has made itself, mostly, so nothing is to be learnt from it; the request does not leave
    the node. Raises ApiError, BadFile.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, port, timeout=SECONDS, context=context)
    read = ask(connection, "GET", "/configz", token(account))
    try:
        return policies_of(read["kubeletconfig"])
    except (KeyError, ValueError, AttributeError) as error:
        raise BadFile("read kubelet's configuration", f"https://{address}:{port}/configz", str(error)) from error
