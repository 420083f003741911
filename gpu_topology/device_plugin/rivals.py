"""Who else hands out a node's GPUs or network functions: two plugins would give one device to two pods."""

import socket
from collections.abc import Collection
from pathlib import Path

from gpu_topology.api import Topology
from gpu_topology.device_plugin.rpc import allocatable

_NVIDIA = "nvidia.com/"  # its plugin's resources: gpu, gpu.shared, mig-…
_ADVICE = "take that plugin off this node; docs/guides/gpu-topology.md says how"


def find_rival(kubelet_folder: Path, topology: Topology, own: Collection[str]) -> str:
    """Which resource of another plugin has the same devices, and what to do; empty if none is known.

    Kubelet says what it can hand out, on its PodResources socket; where that does not answer, a socket that NVIDIA's
    plugin listens on tells. `own` are the resources that are ours.
    """
    machine = topology.machine
    devices = {gpu.uuid for gpu in machine.gpus if gpu.uuid} | {gpu.pci for gpu in machine.gpus}
    devices |= {function.pci for nic in machine.nics for function in nic.functions}
    try:
        known = allocatable(pod_resources(kubelet_folder)).devices
    except OSError:
        listening = next((path for path in sorted(kubelet_folder.glob("nvidia*.sock")) if _listens(path)), None)
        return f"a plugin of NVIDIA listens on {listening}; {_ADVICE}" if listening and machine.gpus else ""
    for entry in known:
        if entry.resource_name in own:
            continue
        shared = sorted(devices.intersection(entry.device_ids))
        if shared or (entry.resource_name.startswith(_NVIDIA) and machine.gpus):
            what = f"{entry.resource_name} has {', '.join(shared or entry.device_ids)}"
            return f"kubelet hands out the same devices for another plugin: {what}; {_ADVICE}"
    return ""


def pod_resources(kubelet_folder: Path) -> Path:
    """Kubelet's PodResources socket, beside the folder of plugins."""
    return kubelet_folder.parent / "pod-resources" / "kubelet.sock"


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1)
        try:
            asking.connect(str(path))
        except OSError:
            return False
        return True
