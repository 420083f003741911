"""gpu-topology serve."""

import argparse
import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_topology.allocate import Policy
from gpu_topology.command.options import VARIABLE, add_kubelet_options, inputs_of, not_installed
from gpu_topology.discover import NO_OVERRIDES
from gpu_topology.errors import UsageError
from gpu_topology.network import live_subnets
from gpu_topology.nvml import read_facts
from gpu_topology.overrides import load_overrides
from gpu_topology.pci import read_devices
from gpu_topology.rails import check_resource
from gpu_topology.recording import Inputs

if TYPE_CHECKING:
    from gpu_topology.cluster.report import Report
    from gpu_topology.device_plugin.gpus import Gpus
    from gpu_topology.device_plugin.process import Process
    from gpu_topology.device_plugin.resource import Backend

FOLDER = Path("/var/lib/gpu-topology")
NODE_FILE = "node.json"


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    text = f"Each flag is a variable {VARIABLE}<NAME> as well."
    serve = verbs.add_parser("serve", help="serve the node's GPUs to kubelet until SIGTERM", description=text)
    serve.add_argument(
        "--folder", type=Path, default=FOLDER, metavar="DIR", help=f"the plugin's own, the same on the node ({FOLDER})"
    )
    serve.add_argument("--policy", type=_policy, default=Policy.BEST_LINK, help="which GPUs are best (best-link)")
    serve.add_argument("--devices", type=Path, metavar="FILE", help="YAML: other devices to serve, whole or in GBs")
    serve.add_argument("--cdi", default="", metavar="KIND", help="hand out CDI names of this kind, as dsagent.io/gpu")
    serve.add_argument(
        "--host-network", type=_switch, default=False, metavar="on|off", help="pods have the node's interfaces (off)"
    )
    serve.add_argument("--node", default="", metavar="NAME", help="write this node's NodeTopology; in a pod only")
    serve.add_argument(
        "--rail-numbers", type=_object, default=None, metavar="NAMESPACE/NAME", help="the ConfigMap of rail numbers"
    )
    serve.add_argument(
        "--kubelet", default="", metavar="ADDRESS|FILE", help="whose configuration is told: a kubelet's or its file"
    )
    serve.set_defaults(run=_serve)
    add_kubelet_options(serve)


def _policy(text: str) -> Policy:
    try:
        return Policy(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(Policy)}") from None


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither on nor off")
    return text == "on"


def _object(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return namespace, name


def _serve(arguments: argparse.Namespace) -> str:
    try:
        from gpu_topology.device_plugin.gpus import Gpus, Terms  # noqa: PLC0415 - needs the extra
        from gpu_topology.device_plugin.process import Process, serve_until_signal  # noqa: PLC0415
        from gpu_topology.device_plugin.rivals import find_rival  # noqa: PLC0415
        from gpu_topology.device_plugin.shares import Shares  # noqa: PLC0415
    except ImportError as error:
        raise not_installed(error) from error
    check_resource(arguments.resource)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    folder: Path = arguments.kubelet_folder
    gpus = Gpus(
        _machine(arguments),
        arguments.node_file or arguments.folder / NODE_FILE,
        Terms(arguments.folder.absolute(), arguments.policy, arguments.cdi, arguments.host_network),
        overrides=load_overrides(arguments.overrides) if arguments.overrides else NO_OVERRIDES,
        pattern=arguments.resource,
        rival=lambda topology, own: find_rival(folder, topology, own),
    )
    backends: list[Backend] = [gpus, *([Shares(arguments.devices)] if arguments.devices else [])]

    if arguments.node:
        gpus.numbers = {}

    async def run() -> None:
        loop = asyncio.get_running_loop()
        report = _report(arguments, gpus, lambda: loop.call_soon_threadsafe(process.wake)) if arguments.node else None
        process = Process(folder, backends, report)
        with (
            nullcontext() if arguments.recording else _xids_watched(gpus, process),
            report.written() if report else nullcontext(),
        ):
            await serve_until_signal(process)

    asyncio.run(run())
    return ""


def _report(arguments: argparse.Namespace, gpus: "Gpus", wake: Callable[[], object]) -> "Report":
    """What writes the node's NodeTopology. Raises UsageError."""
    from gpu_topology.cluster.client import server_of_pod  # noqa: PLC0415 - of a pod only
    from gpu_topology.cluster.policies import ask_kubelet, read_file  # noqa: PLC0415
    from gpu_topology.cluster.report import Place, Report  # noqa: PLC0415
    from gpu_topology.device_plugin.rivals import pod_resources  # noqa: PLC0415

    if not (arguments.rail_numbers and arguments.kubelet):
        cause = "it needs --rail-numbers and --kubelet"
        raise UsageError("report of the node", arguments.node, cause, "the chart gives them")
    kubelet: str = arguments.kubelet
    place = Place(
        arguments.node,
        pod_resources(arguments.kubelet_folder),
        lambda: read_file(Path(kubelet)) if kubelet.startswith("/") else ask_kubelet(kubelet),
        *arguments.rail_numbers,
    )
    return Report(server_of_pod(), place, gpus, wake)


def _machine(arguments: argparse.Namespace) -> Callable[[], Inputs]:
    """What gives the machine as it now is; the driver is asked again only when other GPUs are there."""
    last = inputs_of(arguments)
    if arguments.recording:
        return lambda: last
    gpus: tuple[str, ...] = ()

    def look() -> Inputs:
        nonlocal last, gpus
        now = tuple(gpu.pci for gpu in read_devices(last.sysfs, {}).gpus)
        facts = {**last.facts, **read_facts()} if now != gpus else last.facts
        last, gpus = replace(last, subnets=live_subnets(), facts=facts), now
        return last

    return look


@contextmanager
def _xids_watched(gpus: "Gpus", process: "Process") -> Iterator[None]:
    """Tells of each GPU that the driver reports an error of, at once."""
    from gpu_topology.device_plugin.xid import watch_xids  # noqa: PLC0415 - needs the extra

    loop, is_over = asyncio.get_running_loop(), threading.Event()

    def report(pci: str, what: str) -> None:
        gpus.unwell[pci] = what
        loop.call_soon_threadsafe(process.wake)

    thread = threading.Thread(target=watch_xids, args=(report, is_over))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
