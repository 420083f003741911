"""gpu-topology show."""

import argparse
import json
from collections.abc import Callable

from gpu_topology.api import Topology
from gpu_topology.command.options import add_machine_options, topology_of
from gpu_topology.picture import show_svg
from gpu_topology.text import show_table, show_wide
from gpu_topology.tree import show_tree

FORMS: dict[str, Callable[[Topology], str]] = {
    "table": show_table,
    "wide": show_wide,
    "json": lambda topology: json.dumps(topology.document(), indent=2) + "\n",
    "tree": show_tree,
    "svg": show_svg,
}


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("show", help="GPUs, network cards, what lies between them, rails and classes")
    add_machine_options(parser)
    parser.add_argument("-o", "--output", choices=tuple(FORMS), default="table", help="form of the result")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> str:
    return FORMS[arguments.output](topology_of(arguments))
