"""`dsctl tasks`, `watch` and `top`: what an agent is doing, as users see it."""

import json
import os
import pty
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_client.conftest import finish, slow_agent, staged
from tests.support.agents import AgentProcess, agent
from tests.support.command import DSCTL, HANG_SECONDS, INTERRUPTIBLE, Dsctl
from tests.support.waiting import until


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
            [*INTERRUPTIBLE, *dsctl.command("top")],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
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
