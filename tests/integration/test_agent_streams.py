"""The agent's streams of events, and clients that leave in the middle."""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import trees
from tests.support.agents import AgentProcess, agent
from tests.support.command import HANG_SECONDS
from tests.support.processes import children
from tests.support.waiting import until

pytestmark = pytest.mark.needs("root")  # by peer credentials root is an administrator


@contextmanager
def stream(running: AgentProcess, method: str, path: str, body: Any = None, **headers: str) -> Iterator[Any]:
    """The answer to a request as it comes; the connection is closed at the end, whatever is still to come."""
    connection = http.client.HTTPConnection("agent")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(HANG_SECONDS)
    connection.sock.connect(str(running.socket))
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    try:
        yield answer
    finally:
        answer.close()
        connection.close()


def event(answer: Any, kind: str) -> tuple[int, Any]:
    """The id and the document of the next event of a kind."""
    found: dict[str, str] = {}
    while line := answer.readline().decode():
        if line == "\n" and found.get("event") == kind:
            return int(found.get("id", 0)), json.loads(found["data"])
        if line == "\n":
            found = {}
        elif not line.startswith(":"):
            name, _, value = line.rstrip("\n").partition(": ")
            found[name] = value
    raise AssertionError(f"the stream ended without {kind}")


def test_what_happened_since_an_event_is_told_again(scratch: Path) -> None:
    trees.make_files(scratch / "imgs", 5)
    with agent(scratch / "root") as running:
        with stream(running, "GET", "/v1/events") as events:
            body = {"owner": {"name": "me"}, "datasets": [{"source": str(scratch / "imgs")}]}
            running.ask("PUT", "/v1/tasks/one", body)
            first, info = event(events, "task")
            assert info["id"] == "one"
            while info["state"] != "ready":
                _, info = event(events, "task")
            running.ask("DELETE", "/v1/tasks/one")
            assert event(events, "deleted")[1] == {"id": "one"}
            evicted = running.ask("POST", "/v1/evict", {"reference": "imgs"}).json["evicted"]
            last, document = event(events, "evicted")
            assert [document] == evicted
            running.ask("PATCH", "/v1/limits", {"bandwidth": 5})
            assert event(events, "limits")[1]["bandwidth"] == 5
        with stream(running, "GET", "/v1/events", **{"Last-Event-ID": str(first)}) as events:
            assert event(events, "evicted") == (last, document)
        with stream(running, "GET", "/v1/events", **{"Last-Event-ID": str(last)}) as events:
            assert event(events, "limits")[1]["bandwidth"] == 5
        running.kill()
        running.start()
        for known in (last, last + 10**12):  # of a clock that was ahead, too
            with stream(running, "GET", "/v1/events", **{"Last-Event-ID": str(known)}) as events:
                assert event(events, "lost") == (0, {})
                running.ask("PATCH", "/v1/limits", {"bandwidth": 7})
                assert event(events, "limits")[1]["bandwidth"] == 7


def test_work_that_nobody_waits_for_any_more_ends(scratch: Path) -> None:
    (scratch / "imgs").mkdir()
    for number in range(400):
        (scratch / "imgs" / str(number)).write_bytes(os.urandom(60_000))
    asked = {"a": {"source": str(scratch / "imgs")}, "b": {"source": str(scratch / "imgs")}}
    with agent(scratch / "root", "--workers", "1", "--bandwidth", "100k") as running:  # it would take 8 minutes
        assert running.process is not None
        pid = running.process.pid
        with stream(running, "POST", "/v1/diff", asked) as answer:
            assert answer.status == 200
            assert event(answer, "progress")[1]["files_total"] == 800
            assert children(pid)
        until(lambda: not children(pid), said=lambda: "the workers go on")
        assert running.ask("GET", "/v1/tasks").status == 200
        assert "Traceback" not in running.log.read_text()


def test_only_so_many_read_at_once(scratch: Path) -> None:
    trees.make_files(scratch / "imgs", 20)
    asked = {"a": {"source": str(scratch / "imgs")}, "b": {"source": str(scratch / "imgs")}}
    with agent(scratch / "root", "--bandwidth", "1k") as running:
        with ExitStack() as stack:
            for _ in range(16):
                assert stack.enter_context(stream(running, "POST", "/v1/diff", asked)).status == 200
            refused = running.ask("POST", "/v1/diff", asked)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert running.ask("GET", "/v1/datasets").status == 200, "short requests are answered meanwhile"
        running.ask("PATCH", "/v1/limits", {"bandwidth": 0})
        until(lambda: running.ask("POST", "/v1/diff", asked).status == 200, said=lambda: "nobody else may begin")
