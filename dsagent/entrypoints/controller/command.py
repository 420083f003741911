"""dsagent controller."""

import argparse
import os
import signal
import socket

from dsagent.contract import ENV_POD_NAME
from dsagent.core.errors import UsageError
from dsagent.entrypoints.controller.controller import Controller, let_go
from dsagent.entrypoints.controller.leadership import Leadership
from dsagent.entrypoints.serve.logs import log_to_stderr
from dsagent.wiring import open_cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `dsagent controller`; the chart gives them."""
    parser.add_argument("--namespace", help="Namespace of the Lease.")
    parser.add_argument("--lease", help="Name of the Lease by which one of several replicas leads.")
    parser.add_argument(
        "--let-go", action="store_true", help="Take our finalizers off, remove what nodes said, and end: no more runs."
    )
    parser.add_argument("--log-format", choices=("json", "text"), default="json", help="[default: json].")


def run(arguments: argparse.Namespace) -> None:
    """Works until SIGTERM; raises UsageError, and with --let-go what Cluster raises."""
    log_to_stderr(arguments.log_format)
    cluster = open_cluster("dsagent-controller")
    if arguments.let_go:
        let_go(cluster)
        return
    if not (arguments.namespace and arguments.lease):
        raise UsageError("run", "the controller", "it has no Lease", "give --namespace and --lease")
    identity = os.environ.get(ENV_POD_NAME) or socket.gethostname()
    controller = Controller(cluster, Leadership(cluster, arguments.namespace, arguments.lease, identity))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: controller.stop())
    controller.run()
