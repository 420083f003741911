"""dsagent webhook."""

import argparse
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dsagent.core.errors import UsageError, local_error
from dsagent.entrypoints.self_signed import Pair
from dsagent.entrypoints.serve.logs import log_to_stderr
from dsagent.entrypoints.webhook.certificates import Look, Shared, follow
from dsagent.entrypoints.webhook.parts import Injection
from dsagent.entrypoints.webhook.review import answer
from dsagent.entrypoints.webhook.server import App, Server
from dsagent.wiring import open_cluster

DEFAULT_LISTEN = "0.0.0.0:8443"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `dsagent webhook`; the chart gives them."""
    parser.add_argument("--host-path", required=True, help="The cache's root on every node.")
    parser.add_argument("--image", required=True, help="Image of the init client.")
    parser.add_argument("--pull-policy", default="IfNotPresent", help="How kubelet gets it [default: IfNotPresent].")
    parser.add_argument("--timeout", default="2h", help="How long a pod waits that does not say it [default: 2h].")
    parser.add_argument("--listen", default=DEFAULT_LISTEN, help=f"HOST:PORT [default: {DEFAULT_LISTEN}].")
    parser.add_argument("--namespace", required=True, help="Namespace of the webhook's Service and Secret.")
    parser.add_argument("--service", required=True, help="The Service by which API servers reach it.")
    parser.add_argument("--secret", help="Secret in which the replicas keep the certificate that they make.")
    parser.add_argument("--configuration", help="MutatingWebhookConfiguration that is told to trust it.")
    parser.add_argument("--certificates", help="Folder with tls.crt and tls.key of somebody else's making, instead.")
    parser.add_argument("--log-format", choices=("json", "text"), default="json", help="[default: json].")


def run(arguments: argparse.Namespace) -> None:
    """Serves until SIGTERM; raises UsageError, and what Cluster raises."""
    log_to_stderr(arguments.log_format)
    cluster = open_cluster("dsagent-webhook")
    host, _, port = arguments.listen.rpartition(":")
    if not port.isdecimal():
        raise UsageError("listen on", arguments.listen, "it is no HOST:PORT")
    injection = Injection(
        arguments.host_path.rstrip("/") or "/", arguments.image, arguments.pull_policy, arguments.timeout
    )
    name = f"{arguments.service}.{arguments.namespace}.svc"
    look: Look
    if arguments.certificates:
        look = partial(_read, Path(arguments.certificates))
    elif arguments.secret and arguments.configuration:
        look = Shared(cluster, arguments.namespace, arguments.secret, arguments.configuration, (name,)).look
    else:
        raise UsageError("serve", "the webhook", "it has no certificate", "give --secret and --configuration")
    pair = look(datetime.now(UTC))
    server = Server(App(partial(answer, cluster=cluster, injection=injection)), host.strip("[]"), int(port), pair)
    stopped = threading.Event()
    following = (look, pair, server.serve_with, stopped)
    threading.Thread(target=follow, args=following, name="certificates", daemon=True).start()
    server.run()
    stopped.set()


def _read(folder: Path, _now: datetime) -> Pair:
    try:
        return Pair((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())
    except OSError as error:
        raise local_error("read", str(folder), error) from error
