"""gpu-topology: the command line."""

import argparse
import os
import sys
from importlib.metadata import version

from gpu_topology.command import allocated, recorded, shown, vfs
from gpu_topology.errors import EXIT_OK, TopologyError

VERBS = (shown, allocated, vfs, recorded)


def main() -> int:
    """Runs gpu-topology on the process's arguments; returns its exit code."""
    parser = argparse.ArgumentParser("gpu-topology", description=__doc__, allow_abbrev=False)
    parser.description = "Which GPUs and network cards of a node are near each other."
    parser.add_argument("--version", action="version", version=f"gpu-topology {version('dsagent')}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb in VERBS:
        verb.add(verbs)
    arguments = parser.parse_args()
    try:
        sys.stdout.write(arguments.run(arguments))
        sys.stdout.flush()
    except TopologyError as error:
        sys.stderr.write(f"gpu-topology: {error}\n")
        return error.exit_code
    except BrokenPipeError:  # nobody has to read it
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
    return EXIT_OK
