"""The wheel, and fresh environments that have it as users would."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """A virtual environment with dsagent and one choice of extras."""

    extras: str
    bin: Path

    @property
    def python(self) -> Path:
        return self.bin / "python"

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its scripts, with nothing of the environment the tests run in."""
        command = [str(self.bin / script), *arguments]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, cwd="/"
        )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    subprocess.run(build, check=True, capture_output=True, cwd=REPOSITORY)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pins of the lock without their hashes: pip would ask for the wheel's own hash as well."""
    pins = re.findall(r"^[^\s#].*?(?= \\$)", (REPOSITORY / "requirements.lock").read_text(), re.MULTILINE)
    path = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    path.write_text("\n".join(pins))
    return path


@pytest.fixture(scope="session", params=["", "[all]"], ids=["bare", "all"])
def environment(
    request: pytest.FixtureRequest, wheel: Path, constraints: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """A fresh environment with the wheel, bare and with all extras."""
    home = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    made = Environment(request.param, home / "bin")
    install = [sys.executable, "-m", "pip", f"--python={made.python}", "install", "--quiet", "--no-compile"]
    subprocess.run([*install, f"--constraint={constraints}", f"{wheel}{made.extras}"], check=True)
    return made
