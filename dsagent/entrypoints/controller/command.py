"""dsagent controller."""

import argparse
import os
import signal
import socket

from dsagent.adapters.kubernetes.recorder import Recorder
from dsagent.contract import ENV_POD_NAME
from dsagent.core.errors import UsageError
from dsagent.entrypoints.controller.controller import Controller
from dsagent.entrypoints.controller.leadership import Leadership
from dsagent.entrypoints.controller.leaving import forget_nodes, let_go
from dsagent.entrypoints.controller.rail_numbers import RailNumbers
from dsagent.entrypoints.serve.logs import log_to_stderr
from dsagent.wiring import open_cluster

CONTROLLER = "dsagent.io/controller"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `dsagent controller`; the chart gives them."""
    parser.add_argument("--namespace", help="Namespace of the Lease.")
    parser.add_argument("--lease", help="Name of the Lease by which one of several replicas leads.")
    parser.add_argument(
        "--rail-numbers",
        default="dsagent-rails",
        help="Name of the ConfigMap with the numbers of rails [default: %(default)s].",
    )
    leaving = parser.add_mutually_exclusive_group()
    leaving.add_argument(
        "--let-go",
        action="store_true",
        help="Take the Lease and our finalizers off Datasets, and end: for uninstalling.",
    )
    leaving.add_argument(
        "--forget-nodes", action="store_true", help="Delete what agents have written, and end: when they are gone."
    )
    parser.add_argument("--log-format", choices=("json", "text"), default="json", help="[default: json].")


def run(arguments: argparse.Namespace) -> None:
    """Works until SIGTERM; raises UsageError, and when it is to leave what Cluster raises."""
    log_to_stderr(arguments.log_format)
    cluster = open_cluster("dsagent-controller")
    if arguments.forget_nodes:
        forget_nodes(cluster)
        return
    if not (arguments.namespace and arguments.lease):
        hint = "give --namespace and --lease"
        raise UsageError("run", "the controller", "it does not know its objects", hint)
    if arguments.let_go:
        # Never that of a controller, which would go on.
        let_go(cluster, Leadership(cluster, arguments.namespace, arguments.lease, "uninstall"))
        return
    identity = os.environ.get(ENV_POD_NAME) or socket.gethostname()
    leadership = Leadership(cluster, arguments.namespace, arguments.lease, identity)
    numbers = RailNumbers(cluster, arguments.namespace, arguments.rail_numbers)
    recorder = Recorder(cluster, CONTROLLER, identity)
    controller = Controller(cluster, leadership, numbers, recorder.say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: controller.stop())
    recorder.start()
    controller.run()
    recorder.stop()
