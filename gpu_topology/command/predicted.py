"""gpu-topology predict."""

import argparse
import json
from dataclasses import asdict

from gpu_topology.api import Machine
from gpu_topology.command.options import add_machine_options, topology_of
from gpu_topology.errors import UsageError
from gpu_topology.predict import ADMIT, Container, Options, Pod, Policy, Scope, Verdict, predict
from gpu_topology.predict.machine import GPUS, node_of
from gpu_topology.sysfs import cpu_list

_NAME = "main"
_MEMORY = 1 << 30  # any amount: a container without a limit of memory would get no CPUs of its own


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("predict", help="whether kubelet 1.34 would admit a pod, and why")
    parser.add_argument(
        "--policy", choices=tuple(Policy), default=Policy.NONE, help="kubelet's topologyManagerPolicy (none)"
    )
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="how many GPUs the pod asks for (0)")
    parser.add_argument(
        "--cpus", type=float, default=0.5, metavar="N", help="and CPUs: a whole number has them to itself (0.5)"
    )
    parser.add_argument("--used", default="", metavar="0,1,…", help="indices of the GPUs in use (none)")
    parser.add_argument(
        "--used-cpus", default="", metavar="2-5,…", help="CPUs that containers have for themselves (none)"
    )
    parser.add_argument("--reserved-cpus", default="0", metavar="0,…", help="kubelet's reservedSystemCPUs (0)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the result")
    add_machine_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> str:
    if arguments.gpus < 0 or not 0 < arguments.cpus < float("inf"):
        amounts = f"{arguments.gpus} GPUs and {arguments.cpus} CPUs"
        raise UsageError("predict for", amounts, "no pod asks for that", "--gpus from 0, --cpus above 0")
    machine = topology_of(arguments).machine
    node = node_of(
        machine,
        used_gpus=_indices(arguments.used, "GPUs", {gpu.index for gpu in machine.gpus}),
        used_cpus=_cpus(arguments.used_cpus, machine),
        reserved_cpus=_cpus(arguments.reserved_cpus, machine),
    )
    resources = {"cpu": round(arguments.cpus * 1000), "memory": _MEMORY}
    if arguments.gpus:
        resources[GPUS] = arguments.gpus
    pod = Pod((Container(_NAME, resources, resources),))
    verdict = predict(Policy(arguments.policy), Options(), Scope.CONTAINER, pod, node)
    if arguments.output == "json":
        return json.dumps(asdict(verdict)) + "\n"
    return f"{_headline(verdict)}: {verdict.why}\n"


def _headline(verdict: Verdict) -> str:
    affinity = verdict.affinities.get(_NAME)
    if verdict.reason != ADMIT or affinity is None or not affinity.nodes:
        return verdict.reason
    return f"{verdict.reason} on NUMA {'node' if len(affinity.nodes) == 1 else 'nodes'} {_text(affinity.nodes)}"


def _text(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _cpus(text: str, machine: Machine) -> set[int]:
    return _known(text, set(cpu_list(text)), "CPUs", {cpu.id for cpu in machine.cpus})


def _indices(text: str, what: str, known: set[int]) -> set[int]:
    words = [word.strip().removeprefix("gpu") for word in text.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"take {what} as used", text, "that is no list of indices", "as 0,1")
    return _known(text, set(map(int, words)), what, known)


def _known(text: str, numbers: set[int], what: str, known: set[int]) -> set[int]:
    strange = sorted(numbers - known)
    if strange or (text.strip() and not numbers):
        cause = f"the machine has no {_text(tuple(strange))}" if strange else "that is no list of numbers"
        raise UsageError(f"take {what} as used", text, cause, "as 0,1 or 2-5")
    return numbers
