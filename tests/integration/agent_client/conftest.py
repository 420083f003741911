"""What these tests share: dsctl on a root that an agent holds, and a tree that a slow one takes half a minute for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.agents import AgentProcess, agent
from tests.support.command import HANG_SECONDS, Dsctl, Process
from tests.support.trees import make_files

SLOW = ("--bandwidth", "50k")  # a second; what `large` has takes half a minute


@pytest.fixture
def root(scratch: Path) -> Path:
    return scratch / "root"


@pytest.fixture
def tree(scratch: Path) -> Path:
    make_files(scratch / "tiny", 3, directories=1)
    return scratch / "tiny"


@pytest.fixture
def large(scratch: Path) -> Path:
    make_files(scratch / "large", 1000, directories=4)
    return scratch / "large"


@pytest.fixture
def dsctl(root: Path) -> Dsctl:
    return Dsctl(root)


@contextmanager
def slow_agent(root: Path) -> Iterator[AgentProcess]:
    with agent(root, *SLOW) as running:
        yield running


def staged(root: Path) -> bool:
    """Whether a file of a flight has come."""
    return any(root.glob("staging/*/data/*/*"))


def finish(process: Process) -> tuple[int, bytes, str]:
    out, err = process.communicate(timeout=HANG_SECONDS)
    return process.wait(), out, err.decode()
