"""What every case is given: sizes, the product's command, and where to put things."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.bench.trees import Shape

MEMORY = Path("/dev/shm")
# Nothing here takes as long; what does hangs.
LONGEST_SECONDS = 900
GIB = 1 << 30


@dataclass(frozen=True)
class Setting:
    """One run of the bench; `quick` trades sizes and rounds for a first look."""

    build: Path
    native: Path
    quick: bool
    rounds: int

    @property
    def many(self) -> Shape:
        """The tree of caching, packing and updating."""
        return Shape(5_000 if self.quick else 50_000, 4 << 10, 28 << 10)

    @property
    def million(self) -> Shape:
        """The tree of scans and hits."""
        return Shape(50_000 if self.quick else 1_000_000, 48, 64, per_directory=1000)

    @property
    def imagenet(self) -> Shape:
        """As many files as ImageNet has, and more plain bytes than the largest bundle."""
        return Shape(50_000 if self.quick else 1_280_000, 3000, 3600, per_directory=1280)

    @property
    def remote(self) -> Shape:
        """The tree behind latency."""
        return Shape(1_000 if self.quick else 10_000, 16 << 10, 16 << 10)

    def say(self, text: str) -> None:
        """Tell what goes on, apart from the results."""
        print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Dsctl:
    """The product as a person calls it, with one root."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, *arguments: str | Path) -> list[str]:
        """The command line of a verb."""
        program = Path(sys.executable).with_name("dsctl")
        options = ["--root", self.root, "-o", "json", "--progress", "none"]
        return [str(part) for part in (program, *arguments, *options)]

    def run(self, *arguments: str | Path) -> Any:
        """Run a verb; the document it printed.

        Raises:
            RuntimeError: it failed; with what it said.
        """
        return self.parse(self.command(*arguments))

    def parse(self, command: list[str]) -> Any:
        """Run a command line that ends in a document of the product's."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=LONGEST_SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\nexit {done.returncode}: {done.stderr.strip()[-2000:]}")
        return json.loads(done.stdout)


def command(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> None:
    """Run one of the others.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    words = [str(part) for part in arguments]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(words, env=variables, check=False, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\nexit {done.returncode}: {done.stderr.strip()[-2000:]}")


def shell(script: str) -> None:
    """Run a pipeline of others.

    Raises:
        RuntimeError: a part of it failed; with what it said.
    """
    command("bash", "-o", "pipefail", "-c", script)
