"""The agent's HTTP contract in memory, on a real Unix socket: for answers that the real one cannot be made to give."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request that came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """An answer as it is; without a body, a connection that is closed instead."""

    status: int
    body: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)


def dataset(name: str, state: str = "ready", **fields: Any) -> Document:
    """A DatasetInfo; a ready one is a hit of one file."""
    nothing = dict.fromkeys(("bytes_total", "bytes_done", "files_total", "files_done", "fetched_bytes"), 0)
    ready = (
        {"outcome": "hit", "files": 1, "bytes": 7} if state == "ready" else {"outcome": None, "files": 0, "bytes": 0}
    )
    rest = {"version": None, "path": None, "error": None, "rate": 0.0, "eta_seconds": None, "reused_files": 0}
    more = {"skipped_special": 0, "evicted": [], "seconds": 0.0}
    return {"name": name, "state": state, **nothing, **ready, **rest, **more, **fields}


def problem(exit_code: int, detail: str) -> Document:
    """A Problem with that much said."""
    rest = {"type": "https://dsagent.io/problems/any", "title": "Any", "action": "", "subject": "", "cause": ""}
    return {**rest, "detail": detail, "hint": "", "exit_code": exit_code, "paths": []}


class FakeAgent:
    """Remembers what it was asked. `tasks` are its TaskInfos by id; a PUT makes one as `make` says, unless there is
    one. `answers` are given before anything else, one a request.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []
        self.tasks: dict[str, Document] = {}
        self.make: Callable[[Document], list[Document]] = lambda body: [
            dataset(one["name"]) for one in body["datasets"]
        ]
        self.changed = threading.Condition()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Listens on the socket, and ends with all its connections cut."""
        self.socket.unlink(missing_ok=True)
        server = _Server(str(self.socket), self)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.cut()
            server.server_close()
            self.socket.unlink()

    def show(self, task_id: str, *datasets: Document) -> None:
        """From now on the task is so; who waits for it hears of it."""
        states = {one["state"] for one in datasets}
        state = states.pop() if len(states) == 1 else next(s for s in ("running", "failed", "pending") if s in states)
        with self.changed:
            self.tasks[task_id] = {"id": task_id, "owner": {}, "state": state, "prefetch": False, "datasets": datasets}
            self.changed.notify_all()

    def count(self, method: str) -> int:
        """How many requests of that method came."""
        return sum(one.method == method for one in list(self.asked))

    def answer(self, asked: Asked) -> Answer:
        """What the contract says, or what `answers` has."""
        with self.changed:
            self.asked.append(asked)
            self.changed.notify_all()
            if self.answers:
                return self.answers.pop(0)
        url = urlsplit(asked.path)
        task_id = url.path.removeprefix("/v1/tasks/")
        if asked.method == "PUT":
            if task_id not in self.tasks or self.tasks[task_id]["state"] == "failed":
                self.show(task_id, *self.make(asked.body))
        elif task_id not in self.tasks:
            return answer(404, problem(13, f"cannot find the task {task_id}: there is none"))
        else:
            self._wait(task_id, float(parse_qs(url.query).get("wait", ["0"])[0]))
        return answer(200, self.tasks[task_id])

    def _wait(self, task_id: str, seconds: float) -> None:
        before = self.tasks[task_id]["state"]
        with self.changed:
            self.changed.wait_for(lambda: self.tasks[task_id]["state"] != before, seconds)


def answer(status: int, document: object, **headers: str) -> Answer:
    """A document as an answer."""
    return Answer(status, json.dumps(document).encode(), {name.replace("_", "-"): headers[name] for name in headers})


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, agent: FakeAgent) -> None:
        self.agent = agent
        self.connections: set[Any] = set()
        super().__init__(path, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def cut(self) -> None:
        for connection in self.connections:
            try:
                connection.shutdown(2)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        assert isinstance(self.server, _Server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(self.command, self.path, dict(self.headers), json.loads(body) if body else None)
        found = self.server.agent.answer(asked)
        if found.body is None:
            self.close_connection = True
            return
        self.send_response(found.status)
        for name, value in {"Content-Length": str(len(found.body)), **found.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(found.body)

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Nothing."""
