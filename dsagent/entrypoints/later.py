"""The scripts whose work comes with a later release: each says its version and what it still lacks."""

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution

from dsagent import __version__
from dsagent.contract import ExitCode


def _is_installed(requirement: str) -> bool:
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _has_extra(extra: str) -> bool:
    """Whether all that dsagent's own metadata names for the extra is installed."""
    marker = re.compile(rf"""extra\s*==\s*['"]{extra}['"]""")
    return all(_is_installed(needed) for needed in distribution("dsagent").requires or () if marker.search(needed))


def _run(script: str, extra: str) -> int:
    if "--version" in sys.argv[1:]:
        sys.stdout.write(f"{script} {__version__}\n")
        return ExitCode.OK
    if not _has_extra(extra):
        sys.stderr.write(f"{script}: its packages are not installed; pip install 'dsagent[{extra}]'\n")
        return ExitCode.USAGE
    sys.stderr.write(f"{script}: dsagent {__version__} has no such command yet; dsctl works without it\n")
    return ExitCode.FAILURE


def dsagent() -> int:
    """The agent, one a node."""
    return _run("dsagent", "agent")


def scheduler_plugin() -> int:
    """The scheduler extender."""
    return _run("scheduler-plugin", "scheduler")
