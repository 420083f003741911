"""scheduler-plugin serve as a process: what kube-scheduler, an administrator and dsctl see of it."""

import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.certificates import Certificates, make_certificates
from tests.unit.scheduler.worlds import Object, cache, dataset, held, node, pod

SECONDS = 60
NAMES = ["n0", "n1", "n2"]
PLUGIN = [sys.executable, "-m", "scheduler_plugin"]


class Plugin(NamedTuple):
    port: int
    settings: Path
    context: ssl.SSLContext | None
    certificates: Certificates | None = None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        if self.context:
            connection: HTTPConnection = HTTPSConnection("127.0.0.1", self.port, timeout=SECONDS, context=self.context)
        else:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def scores(self, asking: Object) -> dict[str, int]:
        asked = {"Pod": asking, "Nodes": None, "NodeNames": NAMES}
        status, answer = self.ask("POST", "/prioritize", asked)
        assert status == 200
        return {one["Host"]: one["Score"] for one in json.loads(answer)}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module", params=["http", "https"])
def plugin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    folder = tmp_path_factory.mktemp("plugin")
    bound = pod("p", "coco", on="n0")
    objects: list[Any] = [*map(node, NAMES), dataset("coco"), cache("n0", held("coco")), cache("n2", free=1000), bound]
    (folder / "view.json").write_text(json.dumps(objects))
    settings = folder / "settings.yaml"
    settings.write_text("terms: {dataset: {weight: 6}}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = ["serve", "--view", folder / "view.json", "--settings", settings, "--listen", f"127.0.0.1:{port}"]
    context = made = None
    if request.param == "https":
        made = make_certificates(folder)
        line += ["--tls-cert", made.certificate, "--tls-key", made.key]
        context = ssl.create_default_context(cafile=str(made.authority))
    process = subprocess.Popen([*PLUGIN, *map(str, line)], stderr=subprocess.PIPE)
    made_plugin = Plugin(port, settings, context, made)

    def ready() -> bool:
        assert process.poll() is None
        try:
            return made_plugin.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    until(ready)
    yield made_plugin
    process.terminate()
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert b"Traceback" not in said


def test_it_filters_scores_and_explains(plugin: Plugin) -> None:
    asked = {"Pod": pod("p", "coco"), "Nodes": None, "NodeNames": NAMES}
    status, answer = plugin.ask("POST", "/filter", asked)
    assert (status, json.loads(answer)["NodeNames"]) == (200, ["n0", "n1"])
    assert plugin.scores(pod("p", "coco")) == {"n0": 10, "n1": 0, "n2": 0}
    status, answer = plugin.ask("GET", "/explain?namespace=research&pod=p")
    found = json.loads(answer)
    assert (status, found["chosen"], found["asked"]) == (200, "n0", 2)
    assert [(row["node"], row["score"], row["terms"][0]["why"]) for row in found["nodes"]] == [
        ("n0", 10, "has coco"),
        ("n1", 0, "coco not here"),
    ]
    assert [one["node"] for one in found["refused"]] == ["n2"]
    assert plugin.ask("GET", "/explain?namespace=research&pod=nobody")[0] == 404


def test_what_is_no_request_is_answered_with_200_all_the_same(plugin: Plugin) -> None:
    bodies: list[object] = [{}, [], None, "text", {"Pod": None, "NodeNames": NAMES}]
    for body in bodies:
        assert plugin.ask("POST", "/prioritize", body) == (200, b"[]")
        status, answer = plugin.ask("POST", "/filter", body)
        assert status == 200
        assert json.loads(answer)["Error"]


def test_settings_are_read_again_and_a_bad_file_changes_nothing(plugin: Plugin) -> None:
    plugin.settings.write_text("terms: {dataset: {weight: -1}}\n")
    until(lambda: b"dsagent_scheduler_settings_valid 0.0" in plugin.ask("GET", "/metrics")[1])
    assert plugin.scores(pod("p", "coco"))["n0"] == 10
    plugin.settings.write_text("terms: {dataset: {weight: 0}}\n")
    until(lambda: plugin.scores(pod("p", "coco"))["n0"] == 0)
    plugin.settings.write_text("terms: {dataset: {weight: 6}}\n")
    until(lambda: plugin.scores(pod("p", "coco"))["n0"] == 10)


@pytest.mark.parametrize("plugin", ["https"], indirect=True)
def test_a_new_certificate_is_served_without_a_restart(plugin: Plugin, tmp_path: Path) -> None:
    assert plugin.context is not None
    assert plugin.certificates is not None
    renewed = make_certificates(tmp_path)
    plugin.certificates.key.write_bytes(renewed.key.read_bytes())
    plugin.certificates.certificate.write_bytes(renewed.certificate.read_bytes())
    plugin.context.load_verify_locations(renewed.authority)
    shown = ssl.PEM_cert_to_DER_cert(renewed.certificate.read_text())

    context = plugin.context

    def serves_it() -> bool:
        with (
            socket.create_connection(("127.0.0.1", plugin.port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            return connection.getpeercert(binary_form=True) == shown

    until(serves_it)
    assert plugin.ask("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("plugin", ["http"], indirect=True)
def test_dsctl_looks_whether_it_is_asked(plugin: Plugin) -> None:
    line = [sys.executable, "-m", "dsagent.entrypoints.dsctl", "doctor", "--scheduler", "-o", "json"]
    done = subprocess.run(
        [*line, "--plugin", f"http://127.0.0.1:{plugin.port}"], check=True, capture_output=True, text=True
    )
    found = {one["name"]: (one["status"], one["detail"]) for one in json.loads(done.stdout)["checks"]}
    assert found["replicas"] == ("ok", "1 of 1 answer")
    assert found["questions"][0] in ("ok", "warn")  # others may have asked before
    assert found["view"][1].startswith("3 Node, 2 NodeDatasetCache")
    gone = subprocess.run([*line, "--plugin", "http://127.0.0.1:1"], check=False, capture_output=True, text=True)
    assert gone.returncode == 1
    assert "refused" in gone.stdout


@pytest.mark.parametrize("plugin", ["http"], indirect=True)
def test_dsctl_explains(plugin: Plugin) -> None:
    plugin.scores(pod("p", "coco"))
    line = [sys.executable, "-m", "dsagent.entrypoints.dsctl", "explain"]
    where = ["-n", "research", "--plugin", f"http://127.0.0.1:{plugin.port}"]
    done = subprocess.run([*line, "p", *where], check=True, capture_output=True, text=True)
    assert "kube-scheduler chose n0" in done.stdout
    rows = [row.split() for row in done.stdout.splitlines()]
    assert ["n0", "*", "10", "dataset", "1", "1", "6", "has", "coco"] in rows
    done = subprocess.run([*line, "nobody", *where], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "knows of no pod nobody" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--view", "/nonexistent"], "cannot read /nonexistent"),
        (["--listen", "nowhere"], "it has no port"),
        (["--tls-cert", "x"], "--tls-cert and --tls-key belong together"),
    ],
)
def test_what_cannot_be_meant_is_said(line: list[str], said: str) -> None:
    done = subprocess.run([*PLUGIN, "serve", *line], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
