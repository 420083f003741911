"""scheduler-plugin: serve, and snapshot."""

import argparse
import asyncio
import logging
import ssl
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import orjson

from dsagent.contract import SCHEDULER_PORT, ExitCode
from scheduler_plugin.errors import BadSetting, PluginError


def main() -> None:
    """The script."""
    if "--version" not in sys.argv and not all(map(find_spec, ("fastapi", "numpy", "prometheus_client", "uvloop"))):
        sys.stderr.write("scheduler-plugin: its packages are not installed; pip install 'dsagent[scheduler]'\n")
        sys.exit(ExitCode.USAGE)
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except PluginError as error:
        sys.stderr.write(f"scheduler-plugin: {error}\n")
        sys.exit(error.exit_code)


def _parser() -> argparse.ArgumentParser:
    text = "The scheduler extender: data, rail, NUMA, links."
    parser = argparse.ArgumentParser("scheduler-plugin", description=text, allow_abbrev=False)
    shown = f"scheduler-plugin {version('dsagent')}"
    parser.add_argument("--version", action="version", version=shown, help="print the version and end")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    text = "Answer kube-scheduler until a signal ends it."
    verb = verbs.add_parser("serve", help=text, description=text, allow_abbrev=False)
    verb.set_defaults(run=serve)
    listen = f"127.0.0.1:{SCHEDULER_PORT}"
    verb.add_argument("--listen", metavar="HOST:PORT", default=listen, help=f"address and port [default: {listen}]")
    for name, text in {
        "--view": "serve from this YAML or JSON list of objects, without a cluster",
        "--settings": "weights and modes, as YAML; read again when it changes",
        "--tls-cert": "the certificate and its chain, as PEM",
        "--tls-key": "its key",
        "--client-ca": "whose certificates clients must have; without it anyone may ask",
    }.items():
        verb.add_argument(name, type=Path, metavar="FILE", help=text)
    text = "Print all objects that the plugin knows of as a JSON list, for serve --view."
    verbs.add_parser("snapshot", help=text, description=text, allow_abbrev=False).set_defaults(run=snapshot)
    return parser


def serve(arguments: argparse.Namespace) -> None:
    """Answers kube-scheduler until a signal ends it; raises BadSetting."""
    from uvloop import new_event_loop  # noqa: PLC0415 - of the extra

    from scheduler_plugin.server import Listening, run  # noqa: PLC0415 - slow to import

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    listen, tls_cert, tls_key = arguments.listen, arguments.tls_cert, arguments.tls_key
    if (tls_cert is None) != (tls_key is None):
        raise BadSetting("serve on", listen, "--tls-cert and --tls-key belong together", "give both or none")
    if arguments.client_ca and not tls_cert:
        raise BadSetting("serve on", listen, "--client-ca needs --tls-cert", "give a certificate")
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadSetting("serve on", listen, "it has no port", "write HOST:PORT, such as 0.0.0.0:9444")
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            where = Listening(host.strip("[]"), int(port), tls_cert, tls_key, arguments.client_ca)
            runner.run(run(where, arguments.view, arguments.settings))
    except (OSError, ssl.SSLError) as error:
        raise BadSetting(
            "serve on", listen, error.strerror or str(error), "check --listen and the TLS files"
        ) from error


def snapshot(_arguments: argparse.Namespace) -> None:
    """Prints all objects that the plugin knows of as a JSON list, for serve --view."""
    from scheduler_plugin.cluster import connect  # noqa: PLC0415 - slow to import
    from scheduler_plugin.cluster import snapshot as take  # noqa: PLC0415

    sys.stdout.buffer.write(orjson.dumps(take(connect()), option=orjson.OPT_INDENT_2) + b"\n")
