"""gpu-topology show."""

import argparse
import json

from gpu_topology.command.options import add_machine_options, topology_of


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("show", help="GPUs, network cards, what lies between them, rails and classes")
    add_machine_options(parser)
    parser.add_argument("-o", "--output", choices=("json",), default="json", help="form of the result")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> str:
    return json.dumps(topology_of(arguments).document(), indent=2) + "\n"
