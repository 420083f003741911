"""dsctl and `import dsagent` through an agent: which one, over its restarts and its death, with its refusals."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import dsagent
from dsagent.adapters.agent_address import is_held
from tests.support.agents import AgentProcess, agent
from tests.support.certificates import make_certificates
from tests.support.command import DSCTL, HANG_SECONDS, Dsctl, Process
from tests.support.killing import until
from tests.support.trees import assert_published, look, make_files

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
def ended(pid: int) -> Iterator[None]:
    """Whatever becomes of the test, the process does not outlive it."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def slow_agent(root: Path) -> Iterator[AgentProcess]:
    with agent(root, *SLOW) as running:
        yield running


def staged(root: Path) -> bool:
    """Whether a file of a flight has come."""
    return any(root.glob("staging/*/data/*/*"))


def finish(process: Process) -> tuple[int, bytes, str]:
    out, err = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, out, err.decode()


# Which one.


def test_the_agent_of_a_root_is_asked_by_itself_and_only_as_long_as_it_holds_it(dsctl: Dsctl, tree: Path) -> None:
    with agent(dsctl.root) as running:
        dsctl.ok("cache", tree)
        assert "step: commit" in running.log.read_text()
        assert f"setting: agent = {running.address}" in dsctl.run("ls", "-v").err
        running.stop()
        assert "setting: agent" not in dsctl.run("ls", "-v").err
        assert list(dsctl.visible()) == list(dsctl.visible())
    assert len(dsctl.ok("ls")) == 1


def test_an_address_that_is_given_comes_before_the_variable_and_a_root_before_that(scratch: Path, tree: Path) -> None:
    here, other = Dsctl(scratch / "other"), Dsctl(scratch / "root")
    with agent(other.root) as running:
        other.ok("cache", tree)
        nobody = {"DSAGENT_AGENT": f"unix://{scratch}/nobody"}
        by_flag = Dsctl(other.root, nobody).ok("ls", "--agent", running.address)
        assert [one["dataset"] for one in by_flag] == ["tiny"]
        assert Dsctl(here.root, nobody).ok("ls") == []  # --root is given: it is this one
        environment = here.variables() | {"DSAGENT_ROOT": str(here.root), "DSAGENT_AGENT": running.address}
        listed = subprocess.run([*DSCTL, "ls", "-o", "name"], check=True, capture_output=True, env=environment).stdout
        assert listed.startswith(b"tiny@")


def test_an_agent_of_another_root_than_the_one_that_is_given(scratch: Path, tree: Path) -> None:
    with agent(scratch / "root") as running:
        other = Dsctl(scratch / "other")
        problem = other.fails(2, "cache", tree, "--agent", running.address)
        assert str(scratch / "root") in problem["cause"]
        assert other.ok("cache", tree)["path"].startswith(str(other.root))
        assert dsagent.ls(root=running.root) == []


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "cache TREE",
        "path tiny",
        "lease ls",
        "run tiny -- true",
        "evict tiny",
        "doctor",
        "tasks",
        "watch x",
        "top",
    ],
)
def test_nobody_is_there(scratch: Path, tree: Path, line: str) -> None:
    words = [str(tree) if word == "TREE" else word for word in line.split()]
    lone = [*DSCTL, "--agent", f"unix://{scratch}/nobody", "-o", "json", *words]
    done = subprocess.run(lone, check=False, capture_output=True, env=Dsctl(scratch / "root").variables())
    problem = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, done.stdout, problem["exit_code"]) == (7, b"", 7)
    assert problem["type"].endswith("/agent-unreachable")
    assert "dsagent serve" in problem["hint"]


@pytest.mark.parametrize(
    "address", ["", "/run/agent.sock", "http://host:80", "https://host", "unix://a/b", "https://h:x"]
)
def test_what_is_no_address(dsctl: Dsctl, address: str) -> None:
    assert dsctl.fails(2, "ls", "--agent", address)["type"].endswith("/usage-error")


def test_what_is_the_agents_own_is_said(dsctl: Dsctl) -> None:
    with agent(dsctl.root):
        assert "--capacity is not used" in dsctl.run("ls", "--capacity", "1G").err
        assert dsctl.run("ls", "--capacity", "1G", "--quiet").err == ""


# Who asks.


@pytest.fixture
def tokens(scratch: Path) -> dict[str, str]:
    """Files with tokens, by whose they are."""
    (scratch / "tokens").write_text(
        "- {token: good, role: administrator}\n- {token: pods, role: pod, namespace: research, uid: uid-1}\n"
    )
    for name in ("good", "pods", "bad"):
        (scratch / name).write_text(f"{name}\n")
    return {name: str(scratch / name) for name in ("good", "pods", "bad", "none", "tokens")}


def test_tokens(root: Path, tokens: dict[str, str], tree: Path) -> None:
    def asks(token: str) -> Dsctl:
        return Dsctl(root, {"DSAGENT_TOKEN_FILE": tokens[token]})

    with agent(root, "--tokens", tokens["tokens"]):
        asks("good").ok("cache", tree)
        assert "token" in asks("bad").fails(11, "ls")["cause"]
        assert asks("none").fails(2, "ls")["subject"] == f"DSAGENT_TOKEN_FILE {tokens['none']}"
        asks("pods").fails(11, "evict", "--need", "1")
        assert asks("pods").ok("ls") == []


def test_https(root: Path, tokens: dict[str, str], tree: Path) -> None:
    certificates = make_certificates(root.parent / "tls")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tls = ("--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key))
    address = f"https://127.0.0.1:{port}"
    environment = {"DSAGENT_TOKEN_FILE": tokens["good"], "DSAGENT_CA_FILE": str(certificates.authority)}
    with agent(root, "--tcp", f"127.0.0.1:{port}", *tls, "--tokens", tokens["tokens"]):
        remote = Dsctl(root, environment)
        cached = remote.ok("cache", tree, "--agent", address, "--lease", "me")
        assert [one["id"] for one in remote.ok("lease", "ls", "--agent", address)] == [cached["lease"]]
        done = remote.run("run", "tiny", "--agent", address, "-o", "json", "--", "true")
        assert (done.code, done.out) == (2, b"")
        assert "another machine" in done.problem["cause"]
        assert "--lease" in done.problem["hint"]
        doubtful = Dsctl(root, {"DSAGENT_TOKEN_FILE": tokens["good"]})
        assert "DSAGENT_CA_FILE" in doubtful.fails(7, "ls", "--agent", address)["hint"]
        bad = Dsctl(root, environment | {"DSAGENT_CA_FILE": tokens["good"]})
        assert "DSAGENT_CA_FILE" in bad.fails(2, "ls", "--agent", address)["subject"]


# Failures.


def test_failures_are_those_of_the_embedded_root(root: Path, tree: Path, scratch: Path) -> None:
    dsctl, store = Dsctl(root), scratch / "store"
    with agent(root, "--capacity", "100k"):
        dsctl.ok("pack", tree, store)
        dsctl.fails(2, "cache", tree, "--name", "Not/Valid")
        dsctl.fails(2, "cache", tree, "--version", "1")
        dsctl.fails(2, "path", "Not/Valid")
        dsctl.fails(3, "cache", scratch / "missing")
        dsctl.fails(13, "path", "tiny")
        assert dsctl.run("run", "tiny", "--", "true").code == 13
        dsctl.ok("cache", store)
        make_files(scratch / "small", 1, directories=1, seed=7)
        dsctl.fails(2, "cache", scratch / "small", "--name", "tiny")
        dsctl.fails(13, "cache", store, "--version", f"xxh3:{'0' * 32}")
        make_files(scratch / "huge", 100, directories=1)
        assert dsctl.fails(4, "cache", scratch / "huge")["subject"] == "huge"
        dsctl.ok("lease", "add", "tiny", "--owner", "me")
        dsctl.fails(8, "evict", "tiny")
        dsctl.fails(4, "evict", "--need", "1T")
        dsctl.fails(13, "lease", "release", "tiny", "--owner", "you")
        assert len(dsctl.ok("evict", "tiny", "--force")["evicted"]) == 1
        (tree / "dsagent-store.json").write_text("{}")
        dsctl.fails(10, "cache", tree)
        dsctl.fails(10, "diff", tree, tree)
        assert dsctl.ok("tasks") == []  # what failed leaves none behind


def test_what_waits_for_leases_is_a_failure_at_once(root: Path, tree: Path, scratch: Path) -> None:
    dsctl, other = Dsctl(root), scratch / "other"
    other.mkdir()
    for folder in (tree, other):
        (folder / "big").write_bytes(os.urandom(200_000))
    with agent(root, "--capacity", "400k"):
        dsctl.ok("cache", tree, "--lease", "me")
        assert "leased" in dsctl.fails(4, "cache", other)["cause"]
        assert dsctl.ok("tasks") == []
        dsctl.ok("lease", "release", "tiny")
        assert [one["dataset"] for one in dsctl.ok("cache", other)["evicted"]] == ["tiny"]


def test_damage_is_found_and_repaired(dsctl: Dsctl, tree: Path) -> None:
    with agent(dsctl.root):
        data = Path(dsctl.ok("cache", tree)["path"])
        bad = next(path for path in sorted(data.rglob("*")) if path.is_file() and path.stat().st_size)
        bad.chmod(0o644)
        bad.write_bytes(b"x" * bad.stat().st_size)
        done = dsctl.run("verify", "tiny", "-o", "json")
        assert (done.code, [one["path"] for one in done.json["bad"]]) == (5, [str(bad.relative_to(data))])
        assert dsctl.ok("verify", "tiny", "--repair")["repaired"] == 1
        assert dsctl.ok("verify", "tiny")["bad"] == []
        assert_published(data, look(tree))


def test_relative_paths_are_those_of_the_user(root: Path, tree: Path, scratch: Path) -> None:
    dsctl, store = Dsctl(root), scratch / "store"
    with agent(root):
        for line in (["cache", "tiny", "--name", "mine", "--pack-to", "store"], ["diff", "tiny", "mine"]):
            done = subprocess.run(
                dsctl.command(*line, "-o", "json"), check=True, capture_output=True, env=dsctl.variables(), cwd=scratch
            )
        found = json.loads(done.stdout)
        assert (found["a"], found["b"], found["changed"]) == ("tiny", "mine", [])
        assert [one["dataset"] for one in dsctl.ok("ls", store)] == ["mine"]
        version = dsctl.ok("path", "mine")["version"]
        line = ["diff", f"store@{version}", "mine", "-o", "json"]
        subprocess.run(dsctl.command(*line), check=True, capture_output=True, env=dsctl.variables(), cwd=scratch)


# Restarts.


@pytest.mark.parametrize("end", [AgentProcess.kill, AgentProcess.stop])
def test_an_agent_that_ends_in_the_middle_is_a_pause(dsctl: Dsctl, large: Path, end: Callable[..., object]) -> None:
    with agent(dsctl.root, *SLOW, "--drain", "1s") as running:
        process = dsctl.start("cache", large, "-o", "json")
        until(lambda: staged(dsctl.root))
        end(running)
        running.flags = ()
        running.start()
        code, out, err = finish(process)
        assert code == 0, err
        assert_published(Path(json.loads(out)["path"]), look(large))
        assert dsctl.ok("tasks") == []


def test_an_agent_that_is_about_to_listen_is_waited_for(dsctl: Dsctl) -> None:
    with agent(dsctl.root) as running:
        running.kill()
        running.launch()
        until(lambda: is_held(dsctl.root / "locks" / "agent"))
        assert f"setting: agent = {running.address}" in dsctl.run("ls", "-v").err
        assert dsctl.ok("ls") == []


def test_an_agent_that_stays_away_is_given_up(dsctl: Dsctl, large: Path) -> None:
    with slow_agent(dsctl.root) as running:
        process = dsctl.start("cache", large, "-o", "json", "--timeout", "10")
        until(lambda: staged(dsctl.root))
        running.kill()
        code, out, err = finish(process)
        assert (code, out) == (9, b"")
        assert "waiting for it" in err
        assert "run the same command again" in json.loads(err.splitlines()[-1])["hint"]


def test_ctrl_c_ends_the_task_and_the_next_one_goes_on(dsctl: Dsctl, large: Path) -> None:
    with slow_agent(dsctl.root) as running:
        process = dsctl.start("cache", large, "-o", "json")
        until(lambda: staged(dsctl.root))
        os.killpg(process.pid, signal.SIGINT)
        code, out, err = finish(process)
        assert (code, out) == (130, b"")
        assert "run the same command again" in json.loads(err.splitlines()[-1])["hint"]
        assert running.ask("GET", "/v1/tasks").json == []
        running.stop()
        running.flags = ()
        running.start()
        assert dsctl.ok("cache", large)["files"] == 1000


def test_another_program_than_an_agent(dsctl: Dsctl, scratch: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(scratch / "odd"))
        listener.listen()
        process = dsctl.start("ls", "-o", "json", "--agent", f"unix://{scratch}/odd")
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        code, out, err = finish(process)
        connection.close()
    assert (code, out, json.loads(err.splitlines()[-1])["exit_code"]) == (7, b"", 7)


# Leases of processes.


def test_a_lease_of_dsctl_run_needs_no_agent_once_it_is_taken(dsctl: Dsctl, tree: Path) -> None:
    with agent(dsctl.root) as running:
        script = 'sleep 1000 </dev/null >/dev/null 2>&1 & echo $! "$DSAGENT_DATASET_TINY"; read line'
        process = subprocess.Popen(
            dsctl.command("run", tree, "--", "sh", "-c", script),
            env=dsctl.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        background, path = process.stdout.readline().split()
        assert_published(Path(path), look(tree))
        with ended(int(background)):
            dsctl.fails(8, "evict", "tiny", "--force")
            running.kill()
            assert len(dsctl.ok("lease", "ls")) == 1
            dsctl.fails(8, "evict", "tiny", "--force")
            process.kill()  # what it has started holds it
            process.communicate()
            running.start()
            dsctl.fails(8, "evict", "tiny", "--force")
        until(lambda: dsctl.ok("lease", "ls") == [])
        dsctl.ok("evict", "tiny")


def test_a_lease_of_the_library_until_its_last_process_ends(root: Path, tree: Path) -> None:
    with agent(root) as running:
        with dsagent.cache(tree, root=root) as dataset:
            (lease,) = dsagent.lease_ls(root=root)
            assert (lease.dataset, lease.expires) == ("tiny", None)
            assert str(os.getpid()) in lease.owner
            with pytest.raises(dsagent.InUse):
                dsagent.evict("tiny", force=True, agent=running.address)
            child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[dataset.lease_descriptor()])
        assert len(dsagent.lease_ls(root=root)) == 1
        child.communicate(timeout=HANG_SECONDS)
        assert dsagent.lease_ls(root=root) == []
        assert [task.id for task in _tasks(running)] == []


def test_a_forked_child_keeps_the_lease(root: Path, tree: Path) -> None:
    program = """
import os, signal, sys
import dsagent
dataset = dsagent.cache(sys.argv[1], root=sys.argv[2])
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
signal.pause()
"""
    with agent(root):
        command = [sys.executable, "-c", program, str(tree), str(root)]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, env=Dsctl(root).variables())
        assert started.stdout is not None
        child = int(started.stdout.readline())
        started.wait(HANG_SECONDS)
        started.stdout.close()
        with ended(child):
            assert len(dsagent.lease_ls(root=root)) == 1
        until(lambda: dsagent.lease_ls(root=root) == [])


def test_the_functions_of_the_package(root: Path, tree: Path) -> None:
    with agent(root) as running:
        steps: list[dsagent.Progress] = []
        dsagent.cache(tree, agent=running.address, progress=steps.append).release()
        assert (steps[-1].files, steps[-1].total_files) == (3, 3)
        assert [one.dataset for one in dsagent.ls(agent=running.address)] == ["tiny"]
        assert dsagent.path("tiny", root=root).is_dir()
        assert dsagent.df(root=root).root == str(root)
        assert dsagent.verify("tiny", root=root).files == 3
        assert dsagent.diff(tree, "tiny", root=root).changed == []
        lease = dsagent.lease_add("tiny", "me", 60, root=root)
        assert dsagent.lease_renew(lease.id, seconds=90, root=root).owner == "me"
        assert dsagent.lease_release("tiny", "me", root=root).id == lease.id
        for seconds in (0, float("nan"), float("inf")):
            with pytest.raises(dsagent.UsageError):
                dsagent.lease_add("tiny", "me", seconds, root=root)
        assert {finding.status for finding in dsagent.doctor(rebuild=True, root=root)} <= {"ok", "warn"}
        assert dsagent.run(["tiny"], ["sh", "-c", 'exit $(ls "$DSAGENT_DATASET_TINY" | wc -l)'], root=root) == 1
        assert [one.dataset for one in dsagent.evict("tiny", root=root).evicted] == ["tiny"]
        assert dsagent.evict(need=1, root=root).evicted == []
    with pytest.raises(dsagent.AgentUnreachable):
        dsagent.ls(agent=f"unix://{root}/none")


# tasks, watch, top


def _tasks(running: AgentProcess) -> list[Any]:
    return [type("Task", (), task) for task in running.ask("GET", "/v1/tasks").json]


def put(running: AgentProcess, task: str, *sources: Path, **more: Any) -> None:
    body = {"owner": {"namespace": "_local", "name": "me"}, "datasets": [{"source": str(one)} for one in sources]}
    assert running.ask("PUT", f"/v1/tasks/{task}", {**body, **more}).status == 200


def metrics(running: AgentProcess) -> bytes:
    return running.ask("GET", "/metrics").body


def test_watch_follows_a_task_over_a_restart(dsctl: Dsctl, large: Path, tree: Path) -> None:
    with slow_agent(dsctl.root) as running:
        put(running, "0f3c", large, tree)
        process = dsctl.start("watch", "0f3c", "-o", "json", "--progress", "plain")
        until(lambda: staged(dsctl.root) and b'method="GET",route="/v1/tasks/{task_id}"' in metrics(running))
        listed = dsctl.run("tasks").out.decode().splitlines()
        assert listed[0].split() == ["TASK", "OWNER", "STATE", "DATASETS", "PROGRESS", "RATE", "ETA"]
        assert listed[1].split()[:3] == ["0f3c", "me", "running"]
        running.kill()
        running.flags = ()
        running.start()
        code, out, err = finish(process)
        assert code == 0, err
        assert {one["name"]: one["state"] for one in json.loads(out)["datasets"]} == {"large": "ready", "tiny": "ready"}
        assert dsctl.run("watch", "0f3c", "-o", "name").out.decode().startswith("large@xxh3:")


def test_watch_ends_as_its_task_does(dsctl: Dsctl, scratch: Path) -> None:
    with agent(dsctl.root) as running:
        put(running, "bad", scratch / "missing")
        assert "missing" in dsctl.fails(3, "watch", "bad")["detail"]
        assert dsctl.fails(13, "watch", "none")["type"].endswith("/not-cached")


def test_top_in_lines(dsctl: Dsctl, large: Path, tree: Path) -> None:
    with slow_agent(dsctl.root) as running:
        put(running, "0f3c", large)
        put(running, "1f3c", large)
        until(lambda: staged(dsctl.root))
        said = dsctl.run("top", "--once").out.decode()
        assert str(dsctl.root) in said
        assert "50 kB/s" in said
        (flight,) = [line for line in said.splitlines() if line.startswith("large")]
        assert flight.split()[-1] == "2"  # tasks share it


def test_top_on_a_terminal_until_ctrl_c(dsctl: Dsctl, tree: Path) -> None:
    with agent(dsctl.root):
        dsctl.ok("cache", tree, "--lease", "me")
        ours, theirs = pty.openpty()
        environment = dsctl.variables() | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
        with subprocess.Popen(
            dsctl.command("top"), stdout=theirs, stderr=subprocess.PIPE, env=environment, start_new_session=True
        ) as process:
            os.close(theirs)
            drawn = b""
            while drawn.count(b"LEASED") < 2:  # it is drawn again and again
                assert select.select([ours], [], [], HANG_SECONDS)[0]
                drawn += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=HANG_SECONDS)
        os.close(ours)
        assert (process.returncode, err) == (0, b"")
        assert b"\x1b[?1049h" in drawn  # on a screen of its own


def test_completion_of_tasks(dsctl: Dsctl, tree: Path) -> None:
    with agent(dsctl.root) as running:
        put(running, "0f3c", tree)
        assert dsctl.run("_complete", "--", "watch", "0").out == b"0f3c\n"
        typed = [*DSCTL, "_complete", "--", "--agent", running.address, "watch", ""]
        by_address = subprocess.run(typed, check=True, capture_output=True, env=dsctl.variables())
        assert by_address.stdout == b"0f3c\n"
    assert dsctl.run("_complete", "--", "watch", "").out == b""


@pytest.mark.parametrize("name", ["../../evil", "../other/imagenet", "Not/Valid", "."])
def test_a_name_that_is_none_makes_no_link(dsctl: Dsctl, tree: Path, name: str) -> None:
    with agent(dsctl.root) as running:
        body = {"owner": {"name": "me"}, "datasets": [{"source": str(tree), "name": name}]}
        assert running.ask("PUT", "/v1/tasks/0f3c", body).status == 400
        assert [path for path in dsctl.root.rglob("*") if path.is_symlink()] == []
        assert running.ask("GET", "/v1/tasks").json == []
