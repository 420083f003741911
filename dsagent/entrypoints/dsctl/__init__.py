"""dsctl: the command line."""

import gc
import sys

from dsagent.entrypoints.dsctl.arguments import hoist
from dsagent.entrypoints.dsctl.failure import Stopped, Stopping, as_error, report
from dsagent.entrypoints.dsctl.render import Output


def main() -> int:
    """Runs dsctl on the process's arguments; returns its exit code."""
    # A verb makes many objects for each entry, and few cycles of them: the usual 700 take a third of a scan's time.
    gc.set_threshold(100_000, 50, 50)
    arguments = hoist(sys.argv[1:])
    as_json = arguments.output == Output.JSON
    stopping = Stopping(arguments.verb, as_json)
    try:
        from dsagent.entrypoints.dsctl.app import invoke  # noqa: PLC0415 - from here on Ctrl-C is ours
        from dsagent.entrypoints.dsctl.options import Start  # noqa: PLC0415

        start = Start(stopping, arguments.separated)
        try:
            return invoke(arguments.ordered or ["--help"], arguments.verb, start)
        finally:
            if start.session is not None:
                start.session.close()
    except Stopped as stopped:
        stopping.leave(stopped.error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said in one line
        failure = as_error(arguments.verb, error)
        report(failure.problem(), as_json)
        return failure.exit_code
    finally:
        # The interpreter's end would search all that was imported for cycles: a seventh of the time of a hit.
        gc.freeze()
