"""Runs dsctl as a user would: as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import prefork
from tests.support.processes import MARK

REPOSITORY = Path(__file__).parents[2]
DSCTL = [sys.executable, "-P", "-m", "dsagent.entrypoints.dsctl"]
Process = subprocess.Popen[bytes] | prefork.Forked
INTERRUPTIBLE = ["env", "--default-signal=INT"]  # what it runs hears Ctrl-C also where a shell's background job tests
HANG_SECONDS = 120  # no test waits for this long; it only ends one that would wait for ever


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    arguments: Sequence[str]
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)

    @property
    def problem(self) -> dict[str, Any]:
        """The problem that is the last line of standard error."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        return found

    def __str__(self) -> str:
        return f"{' '.join(self.arguments)} -> {self.code}\n{self.out.decode(errors='replace')}\n{self.err}"


def run_forked(words: Sequence[str], variables: Mapping[str, str], prefix: Sequence[str] = ()) -> Done:
    """dsctl with these words alone, in exactly this environment, run to its end."""
    code, out, err = prefork.run("dsctl", words, variables, prefix, HANG_SECONDS)
    return Done(words, code, out, err.decode(errors="replace"))


@dataclass(frozen=True)
class Dsctl:
    """dsctl on one root. `prefix` is a command to run it under, such as setpriv."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()

    def command(self, *arguments: str | Path) -> list[str]:
        """The whole command line."""
        return [*self.prefix, *DSCTL, *self._words(*arguments)]

    def _words(self, *arguments: str | Path) -> list[str]:
        return ["--root", str(self.root), *map(str, arguments)]

    def variables(self) -> dict[str, str]:
        """The environment it runs in."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DSAGENT_")}
        return {**kept, "PYTHONPATH": str(REPOSITORY), **self.environment}

    def start(self, *arguments: str | Path) -> Process:
        """Starts it in a process group of its own, with both outputs piped.

        It may lack a mark of its own, for whoever started it knows its pid; what it starts has the mark.
        """
        own = {name: value for name, value in self.environment.items() if name != MARK}
        if prefork.possible(own, self.prefix):
            return prefork.Forked("dsctl", self._words(*arguments), self.variables(), prefix=self.prefix)
        return subprocess.Popen(
            self.command(*arguments),
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *arguments: str | Path) -> Done:
        """Runs it to its end, whatever that is."""
        if prefork.possible(self.environment, self.prefix):
            return run_forked(self._words(*arguments), self.variables(), self.prefix)
        done = subprocess.run(
            self.command(*arguments),
            check=False,
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HANG_SECONDS,
        )
        return Done(list(map(str, arguments)), done.returncode, done.stdout, done.stderr.decode(errors="replace"))

    def ok(self, *arguments: str | Path) -> Any:
        """Runs it, asserts that it succeeds, and gives its document."""
        done = self.run(*arguments, "-o", "json")
        assert done.code == 0, done
        return done.json

    def fails(self, code: int, *arguments: str | Path) -> dict[str, Any]:
        """Runs it, asserts that it ends with `code`, prints nothing and gives the problem."""
        done = self.run(*arguments, "-o", "json")
        assert done.code == code, done
        assert done.out == b"", done
        problem = done.problem
        assert problem["exit_code"] == code, done
        assert problem["detail"], done
        assert "bug in dsagent" not in done.err, done
        return problem

    def visible(self) -> dict[str, Path]:
        """What `ls` shows: where the data of each dataset@version are."""
        return {f"{row['dataset']}@{row['version']}": Path(row["path"]) for row in self.ok("ls")}

    def assert_nothing_published(self) -> None:
        """Neither in the listing nor on the disk."""
        assert self.visible() == {}
        assert not list(self.root.glob("versions/*/*/*/data"))
