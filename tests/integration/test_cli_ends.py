"""How dsctl ends when it does not succeed, when it is stopped, and when nobody reads what it writes."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import agent
from tests.support.command import DSCTL, HANG_SECONDS, Dsctl
from tests.support.processes import MARK, marked

ENDLESS = 1 << 40  # bytes of a sparse file: whoever reads it is busy for a while


@pytest.fixture
def dsctl(tmp_path: Path) -> Dsctl:
    return Dsctl(tmp_path / "root")


@pytest.fixture(params=["embedded", "agent"])
def either(request: pytest.FixtureRequest, dsctl: Dsctl) -> Iterator[Dsctl]:
    """The same on a root that an agent holds."""
    with agent(dsctl.root) if request.param == "agent" else nullcontext():
        yield dsctl


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "b.txt").write_text("b" * 5000)
    return folder


def _fails(dsctl: Dsctl, code: int, *line: str | Path) -> dict[str, Any]:
    """Runs it, asserts that it ends with `code` and writes nothing, and gives the problem."""
    done = dsctl.run("-o", "json", *line)
    assert (done.code, done.out) == (code, b""), done
    assert done.problem["exit_code"] == code
    assert {"type", "title", "detail"} <= set(done.problem)
    return done.problem


@pytest.mark.parametrize(
    "line",
    [
        "nope",
        "",
        "cache",
        "cache TREE --nope",
        "cache TREE --check sometimes",
        "cache TREE --name Not/Valid",
        "cache TREE --version 1",
        "cache TREE --lease me --lease-for soon",
        "cache TREE --storage-option nonsense",
        "ls --capacity many",
        "ls --timeout 0",
        "ls --progress fast",
        "ls --root",
        "lease",
        "lease add tiny",
        "evict",
        "evict tiny --need 1G",
        "evict --need 1G --force",
        "path Not/Valid",
        "pack TREE STORE --bundle-bytes lots",
        "pack TREE STORE --level 99",
        "run tiny",
        "run tiny sh -c true",
        "run tiny --",
        "store forget STORE",
        "completion tcsh",
    ],
)
def test_usage_errors(dsctl: Dsctl, tree: Path, line: str) -> None:
    words = [{"TREE": str(tree), "STORE": f"{tree}-store"}.get(word, word) for word in line.split()]
    if not words:
        words = ["--nope"]
    problem = _fails(dsctl, 2, *words)
    assert problem["type"].endswith("/usage-error")


def test_an_unknown_output_is_a_usage_error_in_a_sentence(dsctl: Dsctl) -> None:
    done = dsctl.run("ls", "-o", "xml")
    assert (done.code, done.out) == (2, b"")
    assert done.err.splitlines()[-1].startswith("dsctl: cannot run dsctl: argument --output/-o: 'xml' is not one of")


def test_a_misspelt_verb_is_told_the_right_one(dsctl: Dsctl) -> None:
    assert "'verify'" in _fails(dsctl, 2, "verfy", "tiny")["detail"]


def test_each_failure_has_its_code(dsctl: Dsctl, tree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    dsctl.ok("pack", tree, store)
    assert "b.txt" not in _fails(dsctl, 2, "pack", tree, store, "--name", "other")["detail"]
    _fails(dsctl, 3, "cache", tmp_path / "missing")
    _fails(dsctl, 4, "cache", store, "--capacity", "1k")
    _fails(dsctl, 13, "path", "tiny")
    _fails(dsctl, 13, "run", "tiny", "--", "true")
    _fails(dsctl, 9, "cache", store, "--timeout", "0.001")
    cached = dsctl.ok("cache", store)
    _fails(dsctl, 2, "cache", tmp_path, "--name", "tiny")
    dsctl.ok("lease", "add", "tiny", "--owner", "me")
    _fails(dsctl, 8, "evict", "tiny")
    assert dsctl.ok("evict", "tiny", "--force")["evicted"][0]["version"] == cached["version"]
    _fails(dsctl, 10, "ls", tree)
    (tree / "dsagent-store.json").write_text("{}")
    _fails(dsctl, 10, "cache", tree)
    _fails(Dsctl(Path("/sys/dsagent")), 11, "cache", store)


def test_a_source_that_changes_while_it_is_read(either: Dsctl, tree: Path) -> None:
    over = threading.Event()

    def change() -> None:
        with (tree / "b.txt").open("a") as file:
            while not over.is_set():
                file.write("b")
                file.flush()

    writer = threading.Thread(target=change)
    writer.start()
    try:
        problem = _fails(either, 6, "cache", tree)
    finally:
        over.set()
        writer.join()
    assert problem["paths"] == ["b.txt"]
    assert either.ok("ls") == []
    assert either.ok("cache", tree)["files"] == 2


def test_a_root_whose_catalog_is_none(dsctl: Dsctl, tree: Path) -> None:
    dsctl.ok("cache", tree)
    (dsctl.root / "catalog.sqlite").write_bytes(b"not a catalog" * 1000)
    for line in (["ls"], ["cache", tree], ["path", "tiny"], ["run", "tiny", "--", "true"]):
        assert "doctor" in _fails(dsctl, 12, *line)["hint"]
    dsctl.ok("doctor", "--rebuild")
    assert [one["dataset"] for one in dsctl.ok("ls")] == ["tiny"]


def test_entries_that_cannot_be_kept_are_named(either: Dsctl, tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    assert _fails(either, 3, "cache", tree)["paths"] == ["pipe"]
    assert either.ok("cache", tree, "--skip-special")["skipped_special"] == 1


def test_what_looks_for_damage_prints_what_it_finds_and_fails(dsctl: Dsctl, tree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    dsctl.ok("pack", tree, store)
    bad = Path(dsctl.ok("cache", store)["path"], "b.txt")
    bad.chmod(0o644)
    bad.write_text("c" * 5000)
    done = dsctl.run("verify", "tiny", "-o", "json")
    assert (done.code, [found["path"] for found in done.json["bad"]]) == (5, ["b.txt"])
    assert done.problem["paths"] == ["b.txt"]
    assert dsctl.ok("verify", "tiny", "--repair")["repaired"] == 1
    assert dsctl.ok("verify", "tiny")["bad"] == []

    (bundle,) = (store / "bundles").iterdir()
    bundle.chmod(0o644)
    bundle.write_bytes(bundle.read_bytes()[:-1])
    done = dsctl.run("store", "check", store, "-o", "json")
    assert (done.code, len(done.json["bad"]) > 0, done.problem["exit_code"]) == (10, True, 10)

    dsctl.root.joinpath("catalog.sqlite").write_bytes(b"not a catalog" * 1000)
    done = dsctl.run("doctor", "-o", "json")
    assert (done.code, done.problem["exit_code"]) == (1, 1), done
    assert "fail" in {check["status"] for check in done.json["checks"]}


def test_run(either: Dsctl, tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "o.t-her"
    other.mkdir()
    (other / "c").write_text("c")
    leases = f"{' '.join(DSCTL)} --root {either.root} lease ls -o name"
    script = f'cat "$DSAGENT_DATASET_TINY/a.txt" "$DSAGENT_DATASET_O_T_HER/c"; echo; {leases}; exit 5'
    done = either.run("run", f"{tree},{other}", "--", "sh", "-c", script)
    assert done.code == 5, done
    said = done.out.decode().splitlines()
    assert (said[0], sorted(line.partition("@")[0] for line in said[1:])) == ("ac", ["o.t-her", "tiny"])
    assert either.ok("lease", "ls") == []
    assert either.run("run", "tiny", "--", "sh", "-c", "kill -9 $$").code == -signal.SIGKILL


def test_run_says_what_it_cannot_run(either: Dsctl, tree: Path, tmp_path: Path) -> None:
    assert _fails(either, 127, "run", tree, "--", "no-such-program")["exit_code"] == 127
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert "plain" in _fails(either, 126, "run", "tiny", "--", str(plain))["detail"]


def test_run_refuses_two_datasets_of_one_variable(either: Dsctl, tree: Path, tmp_path: Path) -> None:
    either.ok("cache", tree, "--name", "a.b")
    either.ok("cache", tree, "--name", "a-b")
    assert "DSAGENT_DATASET_A_B" in _fails(either, 2, "run", "a.b,a-b", "--", "true")["detail"]


def test_run_gives_its_command_a_clean_slate(dsctl: Dsctl, tree: Path) -> None:
    """No timer is left to kill it, and a closed pipe ends it quietly, as in a shell."""
    script = "import signal; print(signal.getitimer(signal.ITIMER_REAL)[0])"
    done = dsctl.run("run", tree, "--timeout", "60", "--", sys.executable, "-c", script)
    assert done.code == 0, done
    assert done.out.startswith(b"0.0\n")
    script = "exec grep SigIgn /proc/self/status"
    ignored = int(dsctl.run("run", "tiny", "--", "sh", "-c", script).out.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))


class Endless:
    """A pack that does not end by itself."""

    def __init__(self, folder: Path, *options: str) -> None:
        (folder / "endless").mkdir()
        with (folder / "endless" / "file").open("wb") as file:
            file.truncate(ENDLESS)
        self.mark = uuid.uuid4().hex
        dsctl = Dsctl(folder / "root", {MARK: self.mark})
        self.process = dsctl.start("pack", folder / "endless", folder / "store", "-v", "-o", "json", *options)

    def wait_for_workers(self) -> None:
        """Waits until it has said that it packs."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.strip() == b"step: pack":
                return
        raise AssertionError("it ended before it packed")

    def kill(self) -> None:
        """Whatever became of it: nothing of it runs any more."""
        self.process.kill()
        for pid in marked(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(HANG_SECONDS)

    def end(self) -> tuple[int, bytes, list[str]]:
        """Its exit code, its output, and the lines of its standard error; none of its processes may be left."""
        out, err = self.process.communicate(timeout=HANG_SECONDS)
        assert marked(self.mark) == {}
        return self.process.wait(), out, err.decode().splitlines()


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Callable[..., Endless]]:
    started: list[Endless] = []

    def start(*options: str) -> Endless:
        started.append(Endless(tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def test_ctrl_c_stops_all_of_it_and_says_how_to_go_on(endless: Callable[..., Endless]) -> None:
    running = endless()
    running.wait_for_workers()
    os.killpg(running.process.pid, signal.SIGINT)
    code, out, err = running.end()
    assert (code, out) == (130, b"")
    problem = json.loads(err[-1])
    assert (problem["exit_code"], problem["hint"]) == (
        130,
        "run the same command again: it goes on where this one stopped",
    )


def test_an_interrupt_of_the_parent_alone_stops_its_workers_too(endless: Callable[..., Endless]) -> None:
    running = endless()
    running.wait_for_workers()
    running.process.send_signal(signal.SIGINT)
    assert running.end()[0] == 130


def test_a_timeout_stops_all_of_it(endless: Callable[..., Endless]) -> None:
    code, out, err = endless("--timeout", "1.5").end()
    assert (code, out, json.loads(err[-1])["exit_code"]) == (9, b"", 9)


def test_a_background_job_that_ignores_ctrl_c_goes_on_ignoring_it(dsctl: Dsctl, tree: Path) -> None:
    run = [*dsctl.command("run", tree, "--", "grep", "SigIgn", "/proc/self/status")]
    shell = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *run]
    done = subprocess.run(shell, check=True, capture_output=True, env=dsctl.variables())
    assert int(done.stdout.split()[1], 16) & (1 << (signal.SIGINT - 1))


def test_a_reader_that_has_gone_is_no_failure(dsctl: Dsctl) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        dsctl.command("ls", "-o", "json"), check=False, stdout=writing, stderr=subprocess.PIPE, env=dsctl.variables()
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("colour", [True, False])
def test_a_bar_on_a_terminal(either: Dsctl, tree: Path, colour: bool) -> None:
    ours, theirs = pty.openpty()
    environment = either.variables() | {"TERM": "xterm-256color", "COLUMNS": "160"}
    environment.pop("NO_COLOR", None)
    if not colour:
        environment["NO_COLOR"] = "1"
    done = subprocess.run(
        either.command("cache", tree), check=True, stdout=subprocess.PIPE, stderr=theirs, env=environment
    )
    os.close(theirs)
    drawn = b""
    while chunk := _read(ours):
        drawn += chunk
    os.close(ours)
    text = drawn.decode()
    assert "━" in text
    assert "2 of 2 files" in text
    assert "ETA" in text
    assert bool(re.search(r"\x1b\[[\d;]*3[1-9]", text)) is colour
    assert b"\x1b" not in done.stdout


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed and all is read
        return b""


def test_completion_in_bash(either: Dsctl, tree: Path, tmp_path: Path) -> None:
    either.ok("cache", tree)
    either.ok("cache", tree, "--name", "timid")
    script = tmp_path / "dsctl"
    script.write_text(f'#!/bin/sh\nexec {" ".join(DSCTL)} "$@"\n')
    script.chmod(0o755)
    ask = """
        source <(dsctl completion bash)
        while read -r -a COMP_WORDS; do
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_WORDS[COMP_CWORD]=${COMP_WORDS[COMP_CWORD]%.}
            _dsctl dsctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[*]}"
        done
        complete -p dsctl
    """
    typed = {
        "dsctl ver.": "verify",
        "dsctl path t.": "timid tiny",
        "dsctl run timid,ti.": "timid,timid timid,tiny",
        "dsctl path tin.": "tiny",
        "dsctl lease re.": "release renew",
        "dsctl lease add tim.": "timid",
        "dsctl cache --repl.": "--replace-source",
        "dsctl cache x --prog.": "--progress",
        "dsctl ls -o j.": "json",
        "dsctl ls --output = y.": "yaml",
        "dsctl completion f.": "fish",
        f"dsctl --root {tmp_path}/other path t.": "",
        "dsctl run tiny -- t.": "",
    }
    environment = either.variables() | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DSAGENT_ROOT": str(either.root)}
    done = subprocess.run(
        ["bash", "--norc", "-c", ask],
        check=True,
        capture_output=True,
        text=True,
        input="".join(f"{line}\n" for line in typed),
        env=environment,
    )
    *replies, registered = done.stdout.split("\n")[:-1]
    assert dict(zip(typed, (reply.replace("\n", " ") for reply in replies), strict=True)) == typed, done.stderr
    assert registered == "complete -o bashdefault -o default -F _dsctl dsctl"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts_of_other_shells(dsctl: Dsctl, shell: str) -> None:
    assert "_complete --" in dsctl.run("completion", shell).out.decode()
