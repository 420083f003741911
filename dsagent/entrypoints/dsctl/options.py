"""Options that several verbs have, and those that every verb has."""

import logging
import sys
from typing import Annotated

from dsagent import __version__
from dsagent.core.errors import UsageError
from dsagent.core.quantities import parse_duration
from dsagent.entrypoints.dsctl.failure import Stopping
from dsagent.entrypoints.dsctl.parser import Argument, Option
from dsagent.entrypoints.dsctl.progress import ProgressStyle
from dsagent.entrypoints.dsctl.render import Output
from dsagent.entrypoints.dsctl.session import Session
from dsagent.service.settings import Flags

StorageOption = Annotated[
    list[str] | None,
    Option(metavar="KEY=VALUE", help="Option of the source's or store's filesystem."),
]
SkipSpecial = Annotated[bool, Option(help="Leave out sockets, fifos, devices and symlinks that leave the tree.")]
DryRun = Annotated[bool, Option(help="Say what would be done, and do nothing.")]
Store = Annotated[str, Argument(metavar="STORE", help="Path or URL of a store.")]


def example(*lines: str) -> str:
    """The end of a verb's help text."""
    shown = "\n".join(f"  {line}" for line in lines)
    return f"Example:\n{shown}\n\nOptions of every verb (--root, --output, …): dsctl --help"


def every_verb(  # noqa: PLR0913 - one parameter an option
    start: "Start",
    *,
    root: Annotated[
        str | None,
        Option(
            metavar="DIR",
            help="The cache's folder, on a local filesystem [env: DSAGENT_ROOT; default: /var/lib/dsagent if you can "
            "write there, else ~/.cache/dsagent].",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="The agent to ask, unix:///PATH or https://HOST:PORT [env: DSAGENT_AGENT, unless --root is given; "
            "default: the one that holds the root, if there is one]. DSAGENT_TOKEN_FILE has your token, "
            "DSAGENT_CA_FILE the certificate of an https agent's authority.",
        ),
    ] = None,
    node: Annotated[
        str | None,
        Option(metavar="NODE", help="Ask the agent of this node of the cluster that your kubeconfig leads to."),
    ] = None,
    capacity: Annotated[
        str | None,
        Option(
            metavar="SIZE", help="What all datasets together may take, such as 500G or 500GiB [env: DSAGENT_CAPACITY]."
        ),
    ] = None,
    keep_free: Annotated[
        str | None,
        Option(metavar="SIZE", help="What stays free on the filesystem [env: DSAGENT_KEEP_FREE; default: 15 %]."),
    ] = None,
    output: Annotated[Output, Option(names=("--output", "-o"), help="How results are written.")] = Output.TABLE,
    quiet: Annotated[bool, Option(names=("--quiet", "-q"), help="No progress and no notes.")] = False,
    verbose: Annotated[bool, Option(names=("--verbose", "-v"), help="Say each step on standard error.")] = False,
    timeout: Annotated[
        str | None, Option(metavar="DURATION", help="Stop with exit code 9 after this long, such as 90s or 2h.")
    ] = None,
    progress: Annotated[
        ProgressStyle, Option(help="A bar on a terminal and lines elsewhere, always lines, or nothing.")
    ] = ProgressStyle.AUTO,
    version: Annotated[bool, Option(help="Say the version.", shows=f"dsctl {__version__}")] = False,
) -> Session:
    """Puts datasets of very many files on this node's own disk: whole, verified and read-only."""
    del version  # it ends before
    _log_to_stderr(logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING)
    seconds = None
    if timeout is not None:
        seconds = parse_duration(timeout)
        if seconds <= 0:
            raise UsageError("use", f"--timeout {timeout}", "it is no time at all", "write for example 90s or 2h")
        start.stopping.after(seconds)
    start.session = Session(
        Flags(root, capacity, keep_free),
        agent,
        output,
        progress,
        quiet,
        separated=start.separated,
        patience=seconds,
        node=node,
    )
    return start.session


class Start:
    """What is known before the options are read; `session` follows when they are."""

    def __init__(self, stopping: Stopping, separated: bool) -> None:
        self.stopping = stopping
        self.separated = separated
        self.session: Session | None = None


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("dsagent")
    logger.addHandler(handler)
    logger.setLevel(level)
