"""What a skip costs: it is counted with its reason, and fails CI unless no package would help.

And in which order files are begun, and where, as far as it matters for the time that all of them take.
"""

import os
from collections import Counter

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.needs import NEEDS, unmet

_EXCUSED = "not to be had on this machine: "
_skips: Counter[str] = Counter()
# The files that take longest. They are begun first, so that none is left to one worker at the end.
_LONGEST = (
    *("test_kills", "test_wheel", "test_hdfs", "test_faults", "test_power", "test_roundtrip", "test_guides"),
    *("test_agent_soak", "test_s3", "test_agent_tasks"),
)
_ON_HDFS = (
    "integration/test_hdfs.py",
    "integration/init/test_agent.py",
    "unit/contract/test_source.py",
    "unit/contract/test_store.py",
)

# How long an example takes says nothing here.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _LONGEST.index(item.path.stem) if item.path.stem in _LONGEST else len(_LONGEST))


class _Files(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """A file at a time, and all that use HDFS as one: each worker starts its own, which takes a CPU ten seconds."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "HDFS" if file.endswith(_ON_HDFS) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> _Files | None:
    return _Files(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    lacking = [NEEDS[name] for name in unmet(name for mark in item.iter_markers("needs") for name in mark.args)]
    if lacking:
        excuse = "" if all(need.installable for need in lacking) else _EXCUSED
        pytest.skip(excuse + ", ".join(need.advice for need in lacking))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _count(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _count(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _in_ci() and _avoidable() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"skips: {_skips.total()}")
    for reason, count in sorted(_skips.items()):
        terminalreporter.line(f"{count} x {reason}")
    if _in_ci() and _avoidable():
        terminalreporter.line(f"{_avoidable()} of them could have run on this machine: CI fails", red=True)


def _in_ci() -> bool:
    return os.environ.get("CI") == "true"


def _avoidable() -> int:
    return sum(count for reason, count in _skips.items() if not reason.startswith(_EXCUSED))


def _count(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        _skips[report.longrepr[2].removeprefix("Skipped: ")] += 1
