"""gpu-topology doctor."""

import argparse
import sys

from gpu_topology.command.options import VARIABLE, add_kubelet_options, not_installed, topology_of
from gpu_topology.errors import TopologyError


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    text = f"Each flag is a variable {VARIABLE}<NAME> as well."
    parser = verbs.add_parser("doctor", help="what keeps this node's GPUs from being served", description=text)
    add_kubelet_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> str:
    try:
        from gpu_topology.device_plugin.rivals import find_rival  # noqa: PLC0415 - needs the extra
        from gpu_topology.device_plugin.rpc import KUBELET_SOCKET  # noqa: PLC0415
    except ImportError as error:
        raise not_installed(error) from error
    topology = topology_of(arguments)
    classes = {rail.resource: len(rail.devices) for rail in topology.rails if rail.devices and rail.resource}
    there = ", ".join(f"{count} of {resource}" for resource, count in classes.items())
    socket = arguments.kubelet_folder / KUBELET_SOCKET
    troubles = {
        f"devices: {there}": "" if there else "no GPU has a network function; see `gpu-topology show` and `vfs plan`",
        f"kubelet: {socket}": "" if socket.is_socket() else f"there is no {socket}; kubelet does not run, or elsewhere",
        "other plugins: none": find_rival(arguments.kubelet_folder, topology, classes),
    }
    sys.stdout.write("".join(f"bad  {bad}\n" if bad else f"ok   {good}\n" for good, bad in troubles.items()))
    found = [bad for bad in troubles.values() if bad]
    if found:
        raise TopologyError("serve", "this node's GPUs", "; ".join(found))
    return ""
