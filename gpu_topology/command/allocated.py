"""gpu-topology allocate."""

import argparse
import json

from gpu_topology.allocate import Policy, allocate, score
from gpu_topology.api import Topology
from gpu_topology.command.options import add_machine_options, topology_of
from gpu_topology.errors import UsageError
from gpu_topology.links import scores


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("allocate", help="which GPUs to take together")
    parser.add_argument("--available", default="", metavar="0,1,…", help="indices of the free GPUs (all)")
    parser.add_argument("--required", default="", metavar="2,3", help="those that have to be among them (none)")
    parser.add_argument("--size", type=int, required=True, metavar="N", help="how many to take")
    parser.add_argument("--policy", choices=tuple(Policy), default=Policy.BEST_LINK, help="what is best (best-link)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the result")
    add_machine_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> str:
    topology = topology_of(arguments)
    ids = tuple(gpu.id for gpu in topology.machine.gpus)
    available = _gpus(arguments.available, ids) or ids
    required = _gpus(arguments.required, ids)
    pairs = scores(topology.links, ids)
    chosen = allocate(available, required, arguments.size, Policy(arguments.policy), pairs, _rails(topology))
    if not chosen and arguments.size != 0:
        cause = f"there is no such set among {len(available)} available with {len(required)} required"
        hint = "--required has to be part of --available, and --size between the two"
        raise UsageError("choose", f"{arguments.size} GPUs", cause, hint)
    indices = [int(gpu.removeprefix("gpu")) for gpu in chosen]
    total = score(chosen, pairs)
    if arguments.output == "json":
        return json.dumps({"set": indices, "score": total}) + "\n"
    return f"{','.join(map(str, indices))}  score {total}\n"


def _rails(topology: Topology) -> dict[str, str]:
    return {gpu.id: rail.subnet for rail in topology.rails for gpu in rail.gpus}


def _gpus(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The ids of GPUs named by their indices. Raises UsageError."""
    ids = tuple(dict.fromkeys(f"gpu{word.strip().removeprefix('gpu')}" for word in text.split(",") if word.strip()))
    strange = [gpu for gpu in ids if gpu not in known]
    if strange:
        there = ", ".join(known) or "none"
        raise UsageError("choose among", ", ".join(strange), f"the machine's GPUs are: {there}")
    return ids
