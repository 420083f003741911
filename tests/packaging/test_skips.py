"""The rule on skips, tried on small test files in a pytest of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import REPOSITORY

LACKING = """
import pytest
from tests.needs import NEEDS, Need
NEEDS["unmet"] = Need(lambda: False, {advice!r})
@pytest.mark.needs("unmet")
def test_it(): pass
"""
PLAIN = "import pytest\ndef test_it(): pytest.skip('not today')\n"


def _pytest(directory: Path, text: str, ci: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(text)
    run = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(directory),
        "-p",
        "tests.conftest",
    ]
    environment = {**os.environ, "CI": ci, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*run, str(directory)], check=False, capture_output=True, text=True, cwd=REPOSITORY, env=environment
    )


@pytest.mark.parametrize(
    ("text", "ci", "code"),
    [
        (PLAIN, "true", 1),
        (PLAIN, "false", 0),
        (LACKING.format(advice="a machine with ten GPUs"), "true", 0),
    ],
)
def test_skips_are_counted_and_judged(tmp_path: Path, text: str, ci: str, code: int) -> None:
    done = _pytest(tmp_path, text, ci)
    assert done.returncode == code, done.stdout
    assert "skips: 1" in done.stdout


@pytest.mark.needs("root", "apt")
def test_a_missing_package_is_no_excuse_for_root_on_debian(tmp_path: Path) -> None:
    done = _pytest(tmp_path, LACKING.format(advice="apt install something"), "true")
    assert done.returncode == 1
    assert "1 x apt install something" in done.stdout
    assert "could have run on this machine" in done.stdout
