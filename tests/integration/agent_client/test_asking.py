"""dsctl and `import dsagent` through an agent: which one, for whom, and with what refusals."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

import dsagent
from tests.support.agents import agent
from tests.support.certificates import make_certificates
from tests.support.command import DSCTL, Dsctl, run_forked
from tests.support.trees import assert_published, look, make_files


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
    lone = ["--agent", f"unix://{scratch}/nobody", "-o", "json", *words]
    done = run_forked(lone, Dsctl(scratch / "root").variables())
    problem = done.problem
    assert (done.code, done.out, problem["exit_code"]) == (7, b"", 7)
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
