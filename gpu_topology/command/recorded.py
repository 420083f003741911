"""gpu-topology record."""

import argparse
from pathlib import Path

from gpu_topology.command.options import add_machine_options, inputs_of, topology_of
from gpu_topology.recording import start_recording, write_recording


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("record", help="write this machine to a folder, for --from and for reports of bugs")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--source", default="", metavar="TEXT", help="what machine it is, for those who read it")
    add_machine_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> str:
    inputs, recorder = start_recording(inputs_of(arguments))
    topology_of(arguments, inputs)
    path = write_recording(arguments.folder, inputs, recorder, arguments.source)
    return (
        f"{path}: {path.stat().st_size / 1024:.0f} KiB, without UUIDs, MAC and IP addresses; look before you share it\n"
    )
