"""Options of every verb that looks at a machine, and the look."""

import argparse
import os
from pathlib import Path

from gpu_topology.api import Topology
from gpu_topology.discover import NO_OVERRIDES, NOTHING_BOUND, find_topology
from gpu_topology.errors import UsageError
from gpu_topology.node_file import load_node_file
from gpu_topology.overrides import load_overrides
from gpu_topology.rails import DEFAULT_RESOURCE, check_resource
from gpu_topology.recording import Inputs, live_inputs, load_recording

VARIABLE = "GPU_TOPOLOGY_"
KUBELET_FOLDER = Path("/var/lib/kubelet/device-plugins")


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Which machine to look at, and how."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--from", dest="recording", type=Path, metavar="DIR", help="a machine that `record` wrote to DIR"
    )
    which.add_argument("--sysfs-root", type=Path, default=Path("/sys"), metavar="DIR", help="where sysfs is (/sys)")
    parser.add_argument("--overrides", type=Path, metavar="FILE", help="YAML: switches and NUMA nodes that are hidden")
    parser.add_argument("--node-file", type=Path, metavar="FILE", help="indices, pairs and rail numbers of this node")
    parser.add_argument(
        "--resource", default=DEFAULT_RESOURCE, metavar="NAME", help=f"names of classes ({DEFAULT_RESOURCE})"
    )


def inputs_of(arguments: argparse.Namespace) -> Inputs:
    """The machine that was asked for. Raises TopologyError."""
    return load_recording(arguments.recording) if arguments.recording else live_inputs(arguments.sysfs_root)


def topology_of(arguments: argparse.Namespace, inputs: Inputs | None = None) -> Topology:
    """Its topology. Raises TopologyError."""
    check_resource(arguments.resource)
    overrides = load_overrides(arguments.overrides) if arguments.overrides else NO_OVERRIDES
    bound = load_node_file(arguments.node_file) if arguments.node_file else NOTHING_BOUND
    topology, _ = find_topology(inputs or inputs_of(arguments), overrides, bound, pattern=arguments.resource)
    return topology


def add_kubelet_options(parser: argparse.ArgumentParser) -> None:
    """Where kubelet is, and which machine; of all the parser's flags, what variables say of them."""
    parser.add_argument(
        "--kubelet-folder",
        type=Path,
        default=KUBELET_FOLDER,
        metavar="DIR",
        help=f"where kubelet's plugins listen ({KUBELET_FOLDER})",
    )
    add_machine_options(parser)
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its flags
        name = next((word for word in action.option_strings if word.startswith("--")), "").removeprefix("--")
        text = os.environ.get(VARIABLE + name.upper().replace("-", "_"))
        if text and name != "help":
            action.default = text  # argparse reads it as it reads a flag's


def not_installed(error: ImportError) -> UsageError:
    """What to raise where a verb needs the extra."""
    return UsageError("serve", "GPUs", f"its packages are not installed ({error})", "pip install 'dsagent[topology]'")
