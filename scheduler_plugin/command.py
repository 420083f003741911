"""scheduler-plugin: serve, and snapshot."""

import asyncio
import logging
import ssl
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import orjson
import typer

from dsagent.contract import SCHEDULER_PORT, ExitCode
from scheduler_plugin.errors import BadSetting, PluginError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The scheduler extender: data, rail, NUMA, links.")


def main() -> None:
    """The script."""
    if "--version" not in sys.argv and not all(map(find_spec, ("fastapi", "numpy", "prometheus_client", "uvloop"))):
        sys.stderr.write("scheduler-plugin: its packages are not installed; pip install 'dsagent[scheduler]'\n")
        sys.exit(ExitCode.USAGE)
    try:
        app()
    except PluginError as error:
        sys.stderr.write(f"scheduler-plugin: {error}\n")
        sys.exit(error.exit_code)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"scheduler-plugin {version('dsagent')}\n")
        raise typer.Exit(ExitCode.OK)


@app.callback()
def options(
    shown: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """The scheduler extender: data, rail, NUMA, links."""


@app.command()
def serve(
    listen: Annotated[str, typer.Option(help="Address and port.", metavar="HOST:PORT")] = f"127.0.0.1:{SCHEDULER_PORT}",
    view: Annotated[
        Path | None, typer.Option(help="Serve from this YAML or JSON list of objects, without a cluster.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Weights and modes, as YAML; read again when it changes.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate and its chain, as PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="Whose certificates clients must have; without it anyone may ask.")
    ] = None,
) -> None:
    """Answer kube-scheduler until a signal ends it."""
    from uvloop import new_event_loop  # noqa: PLC0415 - of the extra

    from scheduler_plugin.server import Listening, run  # noqa: PLC0415 - slow to import

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if (tls_cert is None) != (tls_key is None):
        raise BadSetting("serve on", listen, "--tls-cert and --tls-key belong together", "give both or none")
    if client_ca and not tls_cert:
        raise BadSetting("serve on", listen, "--client-ca needs --tls-cert", "give a certificate")
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadSetting("serve on", listen, "it has no port", "write HOST:PORT, such as 0.0.0.0:9444")
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            where = Listening(host.strip("[]"), int(port), tls_cert, tls_key, client_ca)
            runner.run(run(where, view, settings))
    except (OSError, ssl.SSLError) as error:
        raise BadSetting(
            "serve on", listen, error.strerror or str(error), "check --listen and the TLS files"
        ) from error


@app.command()
def snapshot() -> None:
    """Print all objects that the plugin knows of as a JSON list, for serve --view."""
    from scheduler_plugin.cluster import connect  # noqa: PLC0415 - slow to import
    from scheduler_plugin.cluster import snapshot as take  # noqa: PLC0415

    sys.stdout.buffer.write(orjson.dumps(take(connect()), option=orjson.OPT_INDENT_2) + b"\n")
