"""dsctl through an agent that restarts, stays away, or is another program."""

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dsagent.adapters.agent_address import is_held
from tests.integration.agent_client.conftest import SLOW, finish, slow_agent, staged
from tests.support.agents import AgentProcess, agent
from tests.support.command import Dsctl
from tests.support.trees import assert_published, look
from tests.support.waiting import until


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
