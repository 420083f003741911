"""What a pod may ask an agent for."""

import os
from pathlib import Path
from typing import Any

from tests.integration.agent_access.conftest import ROUTES
from tests.support.agents import AgentProcess
from tests.support.tokens import ADMIN, ONE, OTHER, TWO

FOR_ADMINISTRATORS = ("/v1/evict", "/v1/disk", "/v1/doctor", "/v1/doctor/rebuild", "/v1/limits")


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
