"""gpu-topology vfs plan, and vfs apply."""

import argparse
from collections.abc import Iterable

from gpu_topology.command.options import add_machine_options, topology_of
from gpu_topology.errors import TopologyError, UsageError
from gpu_topology.vfs import Plan, apply_plan, plan_vfs


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser("vfs", help="as many virtual functions on each RoCE card as it has GPUs near it")
    steps = parser.add_subparsers(metavar="STEP", required=True)
    for name, text, run in (("plan", "say what is to be done", _say), ("apply", "do it", _apply)):
        step = steps.add_parser(name, help=text)
        add_machine_options(step)
        step.set_defaults(run=run)


def _say(arguments: argparse.Namespace) -> str:
    plans = plan_vfs(topology_of(arguments).rails)
    return "".join(f"{line}\n" for line in _lines(plans)) or "no RoCE card with a subnet here\n"


def _lines(plans: Iterable[Plan]) -> Iterable[str]:
    for plan in plans:
        near = ", ".join(gpu.id for gpu in plan.gpus) or "no GPU"
        has = f"{plan.nic.name} ({plan.nic.pci}): {len(plan.nic.vfs)} VFs, near {near}"
        if plan.is_met:
            yield f"{has}: nothing to do"
        elif plan.obstacle:
            yield f"{has}: {len(plan.gpus)} wanted, but {plan.obstacle}"
        else:
            yield f"{has}: {len(plan.gpus)} will be made by `gpu-topology vfs apply`"


def _apply(arguments: argparse.Namespace) -> str:
    if arguments.recording:
        raise UsageError("make virtual functions on", str(arguments.recording), "it is a recording", "try vfs plan")
    plans = plan_vfs(topology_of(arguments).rails)
    failures = []
    for plan in plans:
        try:
            apply_plan(plan, arguments.sysfs_root)
        except TopologyError as error:
            failures.append(error)
    done = [plan.nic.name for plan in plans if not plan.is_met and not plan.obstacle]
    if failures:
        *others, last = failures
        raise type(last)(last.action, last.subject, "; ".join([last.cause, *map(str, others)]), last.hint)
    return f"made on {', '.join(done)}\n" if done else "nothing to do\n"
