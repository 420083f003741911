"""dsagent: the agent's command line."""

import argparse
import os
import sys

from dsagent import __version__
from dsagent.contract import ExitCode
from dsagent.core.errors import DsagentError


def main() -> int:
    """Runs dsagent on the process's arguments; returns its exit code."""
    if sys.argv[1:2] in (["webhook"], ["controller"]):
        from dsagent.entrypoints.control import run_part  # noqa: PLC0415 - other packages than the agent's

        return run_part(sys.argv[1], sys.argv[2:])
    try:
        from dsagent.entrypoints.serve.command import serve  # noqa: PLC0415 - needs the extra
        from dsagent.entrypoints.serve.settings import FIELDS, FLAG_OF_FILE, load_agent_settings  # noqa: PLC0415
    except ImportError as error:
        if "--version" in sys.argv[1:]:
            sys.stdout.write(f"dsagent {__version__}\n")
            return ExitCode.OK
        sys.stderr.write(f"dsagent: its packages are not installed ({error}); pip install 'dsagent[agent]'\n")
        return ExitCode.USAGE
    parser = argparse.ArgumentParser("dsagent", description="The agent, one a node.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dsagent {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser(
        "serve", help="serve tasks until SIGTERM", description="Each flag is a variable DSAGENT_<NAME> as well."
    )
    verbs.add_parser("webhook", help="give annotated pods of a cluster their datasets")
    verbs.add_parser("controller", help="look after the Datasets of a cluster")
    verb.add_argument(FLAG_OF_FILE, metavar="FILE", help="YAML file with settings by these names.")
    verb.add_argument("--print-config", action="store_true", help="Say the settings and where each is from, and end.")
    for name, field in FIELDS.items():
        meaning = field.meaning.replace("%", "%%")
        verb.add_argument(f"--{name.replace('_', '-')}", metavar=name.upper(), help=meaning)
    arguments = vars(parser.parse_args())
    try:
        settings = load_agent_settings(
            {name: arguments[name] for name in FIELDS}, os.environ, arguments[FLAG_OF_FILE.removeprefix("--")]
        )
        if arguments["print_config"]:
            sys.stdout.write("".join(f"{line}\n" for line in settings.lines()))
            return ExitCode.OK
        serve(settings)
    except DsagentError as error:
        sys.stderr.write(f"dsagent: {error}\n")
        return error.exit_code
    # A listing that still goes on would hold up the end; to end at once is safe, as a kill at any moment is.
    sys.stderr.flush()
    os._exit(ExitCode.OK)
