"""gpu-topology: the command line."""

import argparse
import os
import sys

from gpu_topology.command import allocated, examined, predicted, recorded, served, shown, vfs
from gpu_topology.errors import EXIT_OK, TopologyError

VERBS = (shown, allocated, predicted, vfs, recorded, served, examined)


class _Version(argparse.Action):
    """Says the version; to find it takes longer than most commands."""

    def __call__(self, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        sys.stdout.write(f"gpu-topology {version('dsagent')}\n")
        raise SystemExit(EXIT_OK)


def main() -> int:
    """Runs gpu-topology on the process's arguments; returns its exit code."""
    text = "Which GPUs and network cards of a node are near each other, and what to hand out together."
    parser = argparse.ArgumentParser("gpu-topology", description=text, allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="say the version and end")
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
