"""Requests that are too large, too many, too slow, or not what the API takes."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from dsagent.entrypoints.serve import server
from tests.support.agents import AgentProcess, agent
from tests.support.command import HANG_SECONDS
from tests.support.tokens import ADMIN, ONE, write_tokens
from tests.support.waiting import until

MEBIBYTE = 1 << 20
TASK = {"owner": {"name": "me"}, "datasets": [{"source": "/nowhere/imgs"}]}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    folder = tmp_path_factory.mktemp("agent")
    tokens = write_tokens(folder / "tokens.yaml", ADMIN, ONE)
    with agent(folder / "root", "--tokens", str(tokens)) as started:
        yield started


def raw(path: Path, request: bytes) -> bytes:
    """All that is answered to bytes; the connection is closed by the other side."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(HANG_SECONDS)
        connection.connect(str(path))
        with suppress(OSError):  # it has heard enough
            connection.sendall(request)
        answer = b""
        with suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                answer += piece
        return answer


def put(body: bytes, *headers: str) -> bytes:
    head = ["PUT /v1/tasks/one HTTP/1.1", "Host: agent", f"Authorization: Bearer {ADMIN.token}", "Connection: close"]
    return "\r\n".join([*head, "Content-Type: application/json", *headers, "", ""]).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def test_a_body_that_is_too_large_is_refused_however_it_is_sent(running: AgentProcess) -> None:
    body = json.dumps(TASK).encode()
    fits = body + b" " * (MEBIBYTE - len(body))
    assert status(raw(running.socket, put(fits, f"Content-Length: {MEBIBYTE}"))) == 200
    for answer in (
        raw(running.socket, put(b"", f"Content-Length: {MEBIBYTE + 1}")),
        raw(running.socket, put(fits + b" ", f"Content-Length: {MEBIBYTE + 1}")),
        raw(running.socket, put(b"100001\r\n" + fits + b" \r\n0\r\n\r\n", "Transfer-Encoding: chunked")),
    ):
        assert status(answer) == 413
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert (problem["status"], problem["exit_code"]) == (413, 2)
    ADMIN.ask(running, "DELETE", "/v1/tasks/one")


def test_headers_that_are_too_large_are_refused(running: AgentProcess) -> None:
    many = [f"X-Header-{number}: {'x' * 50}" for number in range(2000)]
    for headers in ([f"X-Large: {'x' * 70_000}"], many):
        assert status(raw(running.socket, put(b"", "Content-Length: 0", *headers))) in (400, 431)
    long = b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for request in (long, b"nonsense\r\n\r\n"):
        answer = raw(running.socket, request)
        assert status(answer) == 400
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert (problem["status"], problem["exit_code"]) == (400, 2)
    assert running.is_ready()


@pytest.mark.parametrize(
    "changed",
    [
        {"unknown": 1},
        {"datasets": [{"source": "/x", "unknown": 1}]},
        {"datasets": [{"source": "/x", "options": {"beneath": "/"}}]},
        {"owner": {"name": "me", "role": "administrator"}},
        {"datasets": []},
        {"datasets": [{"source": "/x"}] * 65},
        {"datasets": [{"source": ""}]},
        {"datasets": [{"source": "/" + "x" * 4096}]},
        {"datasets": [{"source": "/x\n"}]},
        {"datasets": [{"source": "/\ud800"}]},
        {"datasets": [{"source": "/x", "options": {"storage": {str(number): "x" for number in range(33)}}}]},
        {"datasets": [{"source": "/x", "credentials": {str(number): "x" for number in range(33)}}]},
        {"keep_seconds": -1},
        {"keep_seconds": 1e300},
        {"\ud800": 1},
    ],
)
def test_what_the_api_does_not_take_is_refused_with_a_problem(running: AgentProcess, changed: dict[str, Any]) -> None:
    reply = ADMIN.ask(running, "PUT", "/v1/tasks/one", {**TASK, **changed})
    assert reply.status == 422, reply
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.json["status"], reply.json["exit_code"]) == (422, 2)
    assert reply.json["cause"].startswith("body")
    assert ADMIN.ask(running, "GET", "/v1/tasks").json == []


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b"\xff", b"[" * 500_000, b"9" * 5000, b'{"owner": NaN}'])
def test_a_body_that_is_no_document_is_refused(running: AgentProcess, body: bytes) -> None:
    answer = raw(running.socket, put(body, f"Content-Length: {len(body)}"))
    assert status(answer) in (400, 422), answer
    assert b"application/problem+json" in answer
    assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/v1/tasks/" + "x" * 65,
            "/v1/tasks/..",
            "/v1/tasks/a%2Fb",
            "/v1/tasks/.x",
            "/v1/tasks/%00",
            "/v1/tasks/x%0A",
        ),
        *(
            "/v1/tasks/one?wait=61",
            "/v1/tasks/one?wait=nan",
            "/v1/tasks/one?wait=-1",
            "/v1/events?task=a/b",
            "/v2/tasks",
        ),
        *("/v1/datasets?reference=" + "x" * 300, "/v1/datasets?reference=%00", "/v1/datasets?reference=%ff"),
    ],
)
def test_paths_and_queries_are_checked(running: AgentProcess, path: str) -> None:
    reply = ADMIN.ask(running, "GET", path)
    assert reply.status in (400, 404, 422), reply
    assert reply.json["exit_code"] in (2, 13), reply.json


def test_namespaces_that_would_be_other_folders_are_refused(running: AgentProcess) -> None:
    for namespace in ("..", "a/b", "", "A", "_other", "a.b"):
        reply = ADMIN.ask(running, "PUT", "/v1/tasks/one", {**TASK, "owner": {"name": "me", "namespace": namespace}})
        assert reply.status == 400, namespace


@pytest.mark.needs("root", "setpriv")  # prlimit is of the same package
def test_more_connections_than_open_files_do_not_end_the_agent(scratch: Path) -> None:
    with agent(scratch / "root", prefix=("prlimit", "--nofile=64:64")) as running:
        with ExitStack() as stack:
            for _ in range(150):
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.connect(str(running.socket))
        until(running.is_ready)
        assert running.ask("GET", "/v1/tasks").json == []
        for line in running.log.read_text().splitlines():
            assert json.loads(line)["message"], "libraries' lines have the same form"


def test_more_connections_than_the_agent_serves_are_told_to_come_again(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 5)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving(scratch / "socket", seconds=0.0) as path:
        with ExitStack() as stack:
            for _ in range(6):
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.connect(str(path))
            answer = raw(path, request)
            assert status(answer) == 503
            assert b"content-type: application/problem+json" in answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["cause"] == "5 others do"
        until(lambda: status(raw(path, request)) != 503)


@contextmanager
def serving(path: Path, seconds: float) -> Iterator[Path]:
    """The agent's HTTP server with a small app, which answers after so long."""
    app = FastAPI()

    @app.post("/")
    async def answer() -> str:
        await asyncio.sleep(seconds)
        return "answered"

    running, listener = server._server(app, {}), server._unix_socket(str(path))
    thread = threading.Thread(target=lambda: asyncio.run(running.serve([listener])))
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield path
    finally:
        running.should_exit = True
        thread.join()


@pytest.fixture
def impatient(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server that gives clients less time for a request than it takes for an answer."""
    monkeypatch.setattr(server, "SLOW_SECONDS", 0.3)
    with serving(scratch / "socket", seconds=1.0) as path:
        yield path


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST / HTTP/1.1\r\nHost:",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ],
)
def test_a_client_that_is_slow_with_its_request_is_cut_off(impatient: Path, begun: bytes) -> None:
    answer = raw(impatient, begun)
    assert b"answered" not in answer


def test_a_client_whose_answer_is_slow_is_not_cut_off(impatient: Path) -> None:
    whole = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    last = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert raw(impatient, whole + last).count(b'"answered"') == 2
