"""Who may ask an agent: peers of its socket, and tokens."""

import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent_access.conftest import ROUTES
from tests.support.agents import AgentProcess, agent
from tests.support.certificates import make_certificates
from tests.support.command import HANG_SECONDS
from tests.support.people import USER, ordinary_user
from tests.support.tokens import ADMIN, ONE, TWO, Asker, write_tokens
from tools.servers import free_port

UNKNOWN = Asker("nobody's", "team", "uid-one")
# What one request over a socket is answered, from another process: its status.
ASK = """
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", sys.argv[2])
print(connection.getresponse().status)
"""


def asked_as(prefix: Sequence[str], running: AgentProcess, path: str = "/v1/tasks") -> int:
    """What another process is answered."""
    command = [*prefix, sys.executable, "-S", "-c", ASK, str(running.socket), path]
    return int(subprocess.run(command, check=True, capture_output=True, timeout=HANG_SECONDS).stdout)


@pytest.mark.needs("root", "setpriv", "mount")
def test_over_the_socket_root_is_served_and_other_users_are_not(running: AgentProcess) -> None:
    assert asked_as([], running) == 200
    with ordinary_user() as prefix:
        assert asked_as(prefix, running, "/healthz") == 200
        assert asked_as(prefix, running) == 401


@pytest.mark.needs("root", "setpriv", "mount")
def test_configured_users_are_served_over_the_socket(scratch: Path) -> None:
    with agent(scratch / "root", "--peers", f"1,{USER}") as running, ordinary_user() as prefix:
        assert asked_as(prefix, running) == 200
        other = [f"--reuid={USER - 1}" if part == f"--reuid={USER}" else part for part in prefix]
        assert asked_as(other, running) == 401


@pytest.mark.needs("root", "mount")
def test_root_of_another_process_namespace_is_nobody(running: AgentProcess) -> None:
    assert asked_as(["unshare", "--pid", "--fork"], running, "/healthz") == 200
    assert asked_as(["unshare", "--pid", "--fork"], running) == 401
    assert asked_as(["unshare", "--mount"], running) == 200, "it is the process namespace that counts"


@pytest.mark.needs("root", "mount")
def test_an_agent_of_another_process_namespace_serves_nobody_by_peer(scratch: Path) -> None:
    prefix = ("unshare", "--pid", "--fork", "--kill-child")
    with agent(scratch / "root", prefix=prefix) as running:
        assert running.ask("GET", "/v1/tasks").status == 401


@pytest.mark.needs("root", "setpriv", "mount")
def test_an_agent_that_is_an_ordinary_user_serves_root_too(scratch: Path) -> None:
    scratch.chmod(0o777)
    with ordinary_user() as prefix, agent(scratch / "root", prefix=prefix) as running:
        assert asked_as([], running) == 200
        assert asked_as(["unshare", "--pid", "--fork"], running) == 401
        assert asked_as(prefix, running) == 401


def test_a_token_that_is_not_known_is_refused_even_from_root(running: AgentProcess) -> None:
    for method, path, body in ROUTES:
        assert UNKNOWN.ask(running, method, path, body).status == 401, (method, path)
    for header in ("", "Bearer", "Bearer ", f"Basic {ADMIN.token}", f"Bearer {ADMIN.token}x", f"Bearer  {ONE.token} x"):
        assert running.ask("GET", "/v1/tasks", headers={"Authorization": header}).status == 401, header
    reply = UNKNOWN.ask(running, "GET", "/v1/tasks")
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert UNKNOWN.token not in reply.body.decode()


def test_a_token_file_that_changes_is_read_anew(scratch: Path) -> None:
    tokens = write_tokens(scratch / "tokens.yaml", ADMIN, ONE)
    with agent(scratch / "root", "--tokens", str(tokens)) as running:
        assert (ONE.ask(running, "GET", "/v1/tasks").status, TWO.ask(running, "GET", "/v1/tasks").status) == (200, 401)
        write_tokens(tokens, ADMIN, TWO)
        assert (ONE.ask(running, "GET", "/v1/tasks").status, TWO.ask(running, "GET", "/v1/tasks").status) == (401, 200)
        tokens.write_text("- {token: SESAME, role: king}")
        for asker in (ADMIN, TWO):
            reply = asker.ask(running, "GET", "/v1/tasks")
            assert reply.status == 503, "nobody can be told from anybody"
        assert "SESAME" not in running.log.read_text()
        write_tokens(tokens, ADMIN)
        assert ADMIN.ask(running, "GET", "/v1/tasks").status == 200


@pytest.mark.parametrize(
    "text",
    [
        *("{", "SESAME", "- SESAME", "- {token: SESAME}", "- {token: SESAME, role: king}", "a: [SESAME]"),
        *("- {token: SESAME, role: pod}", "- {token: SESAME, role: pod, namespace: team}", "- {token: '', role: pod}"),
        *("- {token: SESAME, role: pod, namespace: ../x, uid: y}", "- {role: administrator}", "\x00"),
    ],
)
def test_a_token_file_that_is_not_valid_ends_the_agent_with_a_sentence(scratch: Path, text: str) -> None:
    (scratch / "tokens.yaml").write_text(text)
    starting = AgentProcess(scratch / "root", ("--tokens", str(scratch / "tokens.yaml")))
    try:
        assert starting.launch().wait(timeout=HANG_SECONDS) == 2
    finally:
        starting.end()
    said = starting.log.read_text()
    assert "tokens.yaml" in said
    assert "SESAME" not in said
    assert "Traceback" not in said


def test_over_tls_a_token_serves_and_nothing_but_health_is_served_without(scratch: Path) -> None:
    made = make_certificates(scratch / "pki")
    address = f"127.0.0.1:{free_port()}"
    tokens = write_tokens(scratch / "tokens.yaml", ADMIN, ONE)
    tls = ("--tcp", address, "--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    with agent(scratch / "root", *tls, "--tokens", str(tokens)):
        trusting = ssl.create_default_context(cafile=str(made.authority))

        def ask(
            method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
        ) -> tuple[int, bytes]:
            connection = http.client.HTTPSConnection(address, context=trusting, timeout=HANG_SECONDS)
            try:
                data = body if isinstance(body, str | None) else json.dumps(body)
                connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()

        assert ask("GET", "/v1/tasks", headers={"Authorization": f"Bearer {ADMIN.token}"}) == (200, b"[]")
        for path in ("/healthz", "/readyz"):
            assert ask("GET", path)[0] == 200
        assert ask("GET", "/v1/no-such-thing")[0] == 401
        for method, path, body in ROUTES:
            assert ask(method, path, body)[0] == 401, (method, path)
            assert ask(method, path, "{")[0] == 401, "before anything is read"
            forged = {"X-Forwarded-For": "peer:0", "Forwarded": "for=peer:0", "X-Real-Ip": "peer:0"}
            assert ask(method, path, body, forged)[0] == 401, (method, path)
        with pytest.raises(ssl.SSLCertVerificationError):
            http.client.HTTPSConnection(address, context=ssl.create_default_context()).request("GET", "/healthz")
