"""Who may ask an agent, and for what."""

import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dsagent.contract import ExitCode
from tests import servers
from tests.support import trees
from tests.support.agents import AgentProcess, agent
from tests.support.certificates import make_certificates
from tests.support.command import HANG_SECONDS, Dsctl
from tests.support.people import USER, ordinary_user
from tests.support.tokens import ADMIN, ONE, OTHER, TWO, Asker, write_tokens
from tools.servers import free_port

UNKNOWN = Asker("nobody's", "team", "uid-one")
BODY = {"owner": {"name": "me"}, "datasets": [{"source": "/nowhere"}]}
# All that is not health: method, path and a body that would be valid.
ROUTES: Sequence[tuple[str, str, Any]] = (
    ("GET", "/v1/tasks", None),
    ("PUT", "/v1/tasks/one", BODY),
    ("GET", "/v1/tasks/one", None),
    ("DELETE", "/v1/tasks/one", None),
    ("GET", "/v1/events", None),
    ("GET", "/v1/datasets", None),
    ("POST", "/v1/plan", {"dataset": {"source": "/nowhere"}}),
    ("POST", "/v1/verify", {"reference": "imgs"}),
    ("POST", "/v1/diff", {"a": {"source": "/a"}, "b": {"source": "/b"}}),
    ("POST", "/v1/evict", {"need": 1}),
    ("GET", "/v1/leases", None),
    ("POST", "/v1/leases", {"reference": "imgs", "owner": "me"}),
    ("PUT", "/v1/leases/imgs", {}),
    ("PUT", "/v1/leases/0123456789abcdef/held", None),
    ("DELETE", "/v1/leases/imgs", None),
    ("GET", "/v1/disk", None),
    ("GET", "/v1/doctor", None),
    ("POST", "/v1/doctor/rebuild", None),
    ("GET", "/v1/limits", None),
    ("PATCH", "/v1/limits", {"bandwidth": 1}),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
)
FOR_ADMINISTRATORS = ("/v1/evict", "/v1/disk", "/v1/doctor", "/v1/doctor/rebuild", "/v1/limits")

# What one request over a socket is answered, from another process: its status.
ASK = """
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", sys.argv[2])
print(connection.getresponse().status)
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dsagent-", dir="/dev/shm"))
    folder.chmod(0o755)
    yield folder
    trees.remove(folder)


@pytest.fixture(scope="module")
def sources(place: Path) -> Path:
    """Two trees of one name whose listings are equal, whose contents are not."""
    for team, content in (("team", b"ours"), ("other", b"hers")):
        folder = place / "sources" / team / "imgs"
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"{number}").write_bytes(content)
            os.utime(folder / f"{number}", ns=(0, 10**18 + number))
    return place / "sources"


@pytest.fixture(scope="module")
def running(place: Path, sources: Path) -> Iterator[AgentProcess]:
    tokens = write_tokens(place / "tokens.yaml", ADMIN, ONE, TWO, OTHER)
    with agent(place / "root", "--tokens", str(tokens), "--sources", str(sources)) as started:
        yield started


@pytest.fixture
def imgs(running: AgentProcess, sources: Path) -> Iterator[dict[str, Any]]:
    """A dataset of the first pod's task."""
    yield ONE.put(running, {"source": str(sources / "team" / "imgs")})
    for asker in (ONE, TWO, OTHER):
        asker.end(running)


def asked_as(prefix: Sequence[str], running: AgentProcess, path: str = "/v1/tasks") -> int:
    """What another process is answered."""
    command = [*prefix, sys.executable, "-S", "-c", ASK, str(running.socket), path]
    return int(subprocess.run(command, check=True, capture_output=True, timeout=HANG_SECONDS).stdout)


# Who asks


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


def test_over_tls_a_token_serves_and_nothing_but_health_is_served_without(scratch: Path, sources: Path) -> None:
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


# What a pod may do


def test_a_pod_puts_only_its_own_task(running: AgentProcess, sources: Path) -> None:
    dataset = {"source": str(sources / "team" / "imgs")}
    own = ONE.task(dataset)
    for task, body in (
        ("another", own),
        (TWO.uid, own),
        (TWO.uid, TWO.task(dataset)),
        (ONE.uid, TWO.task(dataset)),
        (ONE.uid, {**own, "owner": {**own["owner"], "namespace": "other"}}),
        (ONE.uid, {**own, "owner": {"name": "pod-one"}}),
    ):
        reply = ONE.ask(running, "PUT", f"/v1/tasks/{task}", body)
        assert (reply.status, reply.json["type"].rpartition("/")[2]) == (403, "not-permitted"), (task, body)
    assert ADMIN.ask(running, "GET", "/v1/tasks").json == []


def test_a_pod_neither_sees_nor_waits_for_nor_ends_anothers_task(running: AgentProcess, imgs: dict[str, Any]) -> None:
    for asker in (TWO, OTHER):
        assert asker.ask(running, "GET", "/v1/tasks").json == []
        for method, path in (("GET", ""), ("GET", "?wait=5"), ("DELETE", "")):
            reply = asker.ask(running, method, f"/v1/tasks/{ONE.uid}{path}")
            assert reply.status == 404
            assert reply.json["cause"] == asker.ask(running, method, "/v1/tasks/none").json["cause"]
    assert [info["id"] for info in ADMIN.ask(running, "GET", "/v1/tasks").json] == [ONE.uid]
    assert ONE.ask(running, "GET", f"/v1/tasks/{ONE.uid}").json["datasets"][0]["path"] == imgs["path"]


def test_a_pod_sees_the_datasets_of_its_own_namespace_only(running: AgentProcess, imgs: dict[str, Any]) -> None:
    for asker in (ONE, TWO):
        assert [info["path"] for info in asker.ask(running, "GET", "/v1/datasets").json] == [imgs["path"]]
        assert len(asker.ask(running, "GET", "/v1/datasets?reference=imgs").json) == 1
    assert OTHER.ask(running, "GET", "/v1/datasets").json == []
    for name in ("imgs", f"imgs@{imgs['version']}", "team/imgs", f"team/imgs@{imgs['version']}", "_local/imgs"):
        assert OTHER.ask(running, "GET", f"/v1/datasets?reference={name}").status == 404, name
        assert OTHER.ask(running, "POST", "/v1/leases", {"reference": name, "owner": "x"}).status == 404, name
        assert OTHER.ask(running, "POST", "/v1/verify", {"reference": name}).status == 404, name
        asked = {"a": {"source": name}, "b": {"source": name}}
        reply = OTHER.ask(running, "POST", "/v1/diff", asked)
        assert reply.status == 404 or b"event: problem" in reply.body, name
        assert b"event: result" not in reply.body


def test_what_is_for_administrators_is_for_no_pod(running: AgentProcess) -> None:
    for method, path, body in ROUTES:
        if path in FOR_ADMINISTRATORS:
            assert ONE.ask(running, method, path, body).status == 403, path


def test_a_pods_leases_are_its_own_whatever_it_sends(running: AgentProcess, imgs: dict[str, Any]) -> None:
    asked = {"reference": "imgs", "owner": "pod other/uid-other", "seconds": 600}
    lease = ONE.ask(running, "POST", "/v1/leases", asked).json
    assert lease["owner"] == "pod team/uid-one"
    for asker in (TWO, OTHER):
        assert lease["id"] not in [info["id"] for info in asker.ask(running, "GET", "/v1/leases").json]
        for wanted in (lease["id"], "imgs", "team/imgs"):
            assert asker.ask(running, "PUT", f"/v1/leases/{wanted}", {"seconds": 1}).status == 404, wanted
            assert asker.ask(running, "DELETE", f"/v1/leases/{wanted}?owner=pod%20team/uid-one").status == 404, wanted
        assert asker.ask(running, "PUT", f"/v1/leases/{lease['id']}/held").status == 404
    own = [info["id"] for info in ONE.ask(running, "GET", "/v1/leases").json]
    assert sorted(own) == sorted([lease["id"], f"pods/{ONE.uid}"])
    assert ONE.ask(running, "PUT", f"/v1/leases/{lease['id']}", {"seconds": 900}).json["expires"] > lease["expires"]
    assert ONE.ask(running, "DELETE", "/v1/leases/imgs").json["id"] == lease["id"]
    assert ADMIN.ask(running, "DELETE", f"/v1/leases/pods/{ONE.uid}").status in (400, 404), "it ends with the task"


def test_two_namespaces_with_equal_listings_each_get_their_own_content(
    running: AgentProcess, sources: Path, imgs: dict[str, Any]
) -> None:
    hers = OTHER.put(running, {"source": str(sources / "other" / "imgs")})
    assert Path(imgs["path"], "0").read_bytes() == b"ours"
    assert Path(hers["path"], "0").read_bytes() == b"hers"
    assert hers["version"] != imgs["version"]
    assert os.stat(Path(hers["path"], "1")).st_ino != os.stat(Path(imgs["path"], "1")).st_ino
    OTHER.end(running)
    for more in ({}, {"options": {"check": "never"}}):
        asked = {"source": str(sources / "other" / "imgs"), "version": imgs["version"], **more}
        refused = OTHER.put(running, asked)
        assert refused["state"] == "failed", "a digest by itself grants nothing"
        assert refused["path"] is None
        OTHER.end(running)


@pytest.mark.needs("root", "setpriv", "mount")
@pytest.mark.parametrize("packed", [True, False])
def test_what_is_here_is_refused_while_the_agent_may_not_read_where_it_came_from(scratch: Path, packed: bool) -> None:
    source = scratch / "data" / "imgs"
    trees.make_files(source, 20)
    place = source
    if packed:
        place = scratch / "data" / "store"
        Dsctl(scratch / "packer").ok("pack", source, place)
    (scratch / "root").mkdir()
    os.chown(scratch / "root", USER, USER)
    os.chmod(scratch, 0o777)
    tokens = write_tokens(scratch / "tokens.yaml", ONE, TWO)
    flags = ("--tokens", str(tokens), "--sources", str(scratch / "data"))
    with ordinary_user() as prefix, agent(scratch / "root", *flags, prefix=prefix) as running:
        first = ONE.put(running, {"source": str(place), "name": "imgs"})
        assert first["state"] == "ready", first
        pinned: dict[str, Any] = {"source": str(place), "name": "imgs", "version": first["version"]}
        never: dict[str, Any] = {"source": str(place), "name": "imgs", "options": {"check": "never"}}
        for asked in (pinned, never):
            assert TWO.put(running, asked)["outcome"] == "hit"
            TWO.end(running)
        os.chmod(place, 0o700)
        for asked in (pinned, never, {**pinned, **never}):
            options = {**asked.get("options", {}), "skip_special": True}  # not what was asked for just before
            refused = TWO.put(running, {**asked, "options": options})
            assert (refused["state"], refused["path"]) == ("failed", None), asked
            assert refused["error"]["exit_code"] in (ExitCode.SOURCE, ExitCode.PERMISSION), refused
            TWO.end(running)


def test_what_is_here_is_refused_to_credentials_that_cannot_read_the_bucket(scratch: Path) -> None:
    environment = servers.versitygw()
    endpoint = {"endpoint_url": environment["AWS_ENDPOINT_URL"], "region": "us-east-1"}
    keys = {
        "access_key_id": environment["AWS_ACCESS_KEY_ID"],
        "secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
    }
    trees.make_files(scratch / "imgs", 10)
    subprocess.run(
        [sys.executable, "-c", MAKE_BUCKET, "access", str(scratch / "imgs")],
        check=True,
        env={**os.environ, **environment},
        timeout=HANG_SECONDS,
    )
    tokens = write_tokens(scratch / "tokens.yaml", ONE, TWO)
    with agent(scratch / "root", "--tokens", str(tokens)) as running:
        asked = {"source": "s3://access/imgs", "options": {"storage": endpoint}}
        first = ONE.put(running, {**asked, "credentials": keys})
        assert first["state"] == "ready", first
        never = {**asked, "options": {"storage": endpoint, "check": "never"}}
        for wanted in ({**asked, "version": first["version"]}, never, asked):
            good = TWO.put(running, {**wanted, "credentials": keys})
            assert good["state"] == "ready", good
            TWO.end(running)
            for bad in ({**keys, "secret_access_key": "x" * 32}, {**keys, "access_key_id": "somebody"}):
                refused = TWO.put(running, {**wanted, "credentials": bad})
                assert (refused["state"], refused["path"]) == ("failed", None), wanted
                # The server says 404 of a key that it does not know.
                assert refused["error"]["exit_code"] in (ExitCode.SOURCE, ExitCode.PERMISSION), refused
                TWO.end(running)


MAKE_BUCKET = """
import boto3, pathlib, sys
client = boto3.client("s3")
client.create_bucket(Bucket=sys.argv[1])
folder = pathlib.Path(sys.argv[2])
for path in folder.rglob("*"):
    if path.is_file():
        client.put_object(Bucket=sys.argv[1], Key=f"imgs/{path.relative_to(folder)}", Body=path.read_bytes())
"""


# What may be named


def test_symlinks_do_not_lead_a_pod_out_of_the_allowed_folders(scratch: Path) -> None:
    trees.make_files(scratch / "private" / "imgs", 300)  # so many that workers read them
    trees.make_files(scratch / "data" / "imgs", 300)
    os.symlink("../private/imgs", scratch / "data" / "out")
    os.symlink(scratch / "private", scratch / "data" / "absolute")
    os.symlink("imgs", scratch / "data" / "within")
    os.symlink("../private", scratch / "data" / "stores")
    tokens = write_tokens(scratch / "tokens.yaml", ONE)
    with agent(scratch / "root", "--tokens", str(tokens), "--sources", f"{scratch / 'data'},s3://data") as running:
        for path in ("data/../private/imgs", "private/imgs", "database", "data/imgs/../../private/imgs"):
            reply = ONE.ask(running, "PUT", f"/v1/tasks/{ONE.uid}", ONE.task({"source": f"{scratch}/{path}"}))
            assert (reply.status, reply.json["exit_code"]) == (403, ExitCode.PERMISSION), path
        for path in ("out", "absolute/imgs"):
            refused = ONE.put(running, {"source": f"{scratch}/data/{path}"})
            assert (refused["state"], refused["error"]["exit_code"]) == ("failed", ExitCode.PERMISSION), refused
            ONE.end(running)
        asked = {"source": f"{scratch}/data/within", "options": {"pack_to": f"{scratch}/data/stores/new"}}
        refused = ONE.put(running, asked)
        assert (refused["state"], refused["error"]["exit_code"]) == ("failed", ExitCode.PERMISSION), refused
        ONE.end(running)
        asked["options"]["pack_to"] = f"{scratch}/private/new"  # type: ignore[index]
        assert ONE.ask(running, "PUT", f"/v1/tasks/{ONE.uid}", ONE.task(asked)).status == 403
        assert not (scratch / "private" / "new").exists()
        asked["options"]["pack_to"] = f"{scratch}/data/new"  # type: ignore[index]
        ready = ONE.put(running, asked)
        assert ready["state"] == "ready", ready
        assert (scratch / "data" / "new" / "dsagent-store.json").exists()
        (info,) = ONE.ask(running, "GET", "/v1/datasets").json
        assert info["source"] == f"{scratch}/data/within", "as it was asked for"
        for url in ("s3://database/x", "s3://data/../x", "s3://data/%2e%2e/x", "s3://other"):
            reply = ONE.ask(running, "PUT", "/v1/tasks/" + ONE.uid, ONE.task({"source": url}))
            assert reply.status == 403, url


def test_a_restart_keeps_a_pack_within_the_allowed_folders(scratch: Path) -> None:
    """The file of a task remembers beneath what each place has to lie."""
    trees.make_files(scratch / "data" / "imgs", 10)
    os.symlink("../private", scratch / "data" / "stores")
    (scratch / "private").mkdir()
    tokens = write_tokens(scratch / "tokens.yaml", ONE)
    options = {"pack_to": f"{scratch}/data/stores/new"}
    with agent(scratch / "root", "--tokens", str(tokens), "--sources", str(scratch / "data")) as running:
        assert ONE.put(running, {"source": f"{scratch}/data/imgs", "options": options})["state"] == "failed"
        running.kill()
        running.start()
        info = ONE.ask(running, "GET", f"/v1/tasks/{ONE.uid}").json
        while info["state"] in ("pending", "running"):
            info = ONE.ask(running, "GET", f"/v1/tasks/{ONE.uid}?wait=10").json
        assert info["datasets"][0]["error"]["exit_code"] == ExitCode.PERMISSION
        assert os.listdir(scratch / "private") == []
