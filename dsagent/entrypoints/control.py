"""dsagent webhook and dsagent controller: the parts of a cluster that are not on every node."""

import argparse
import sys

from dsagent.contract import ExitCode
from dsagent.core.errors import DsagentError


def run_part(part: str, arguments: list[str]) -> int:
    """Runs one of them until SIGTERM; returns its exit code."""
    try:
        if part == "webhook":
            from dsagent.entrypoints.webhook import command  # noqa: PLC0415 - needs the extra
        else:
            from dsagent.entrypoints.controller import command  # type: ignore[no-redef] # noqa: PLC0415 - likewise
    except ImportError as error:
        sys.stderr.write(f"dsagent {part}: its packages are not installed ({error}); pip install 'dsagent[control]'\n")
        return ExitCode.USAGE
    parser = argparse.ArgumentParser(f"dsagent {part}", description=command.__doc__, allow_abbrev=False)
    command.add_arguments(parser)
    try:
        command.run(parser.parse_args(arguments))
    except DsagentError as error:
        sys.stderr.write(f"dsagent {part}: {error}\n")
        return error.exit_code
    return ExitCode.OK
