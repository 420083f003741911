"""The agent's verbs over its socket: what is here, what a caching would do, verify, diff, evict, leases, limits."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import AgentProcess, Reply, agent
from tests.support.command import HANG_SECONDS

OWNER = {"name": "somebody"}
pytestmark = pytest.mark.needs("root")  # by peer credentials root is an administrator


@pytest.fixture
def source(scratch: Path) -> Path:
    folder = scratch / "imgs"
    (folder / "deep").mkdir(parents=True)
    for number in range(20):
        (folder / "deep" / f"{number}.bin").write_bytes(os.urandom(5000))
    return folder


@pytest.fixture
def running(scratch: Path) -> Iterator[AgentProcess]:
    with agent(scratch / "root") as started:
        yield started


def cached(running: AgentProcess, source: Path, task: str = "one", **more: Any) -> dict[str, Any]:
    """Puts a task of one dataset, waits until it is ready, and gives the dataset as it is shown."""
    body = {"owner": OWNER, "datasets": [{"source": str(source)}], **more}
    assert running.ask("PUT", f"/v1/tasks/{task}", body).status == 200
    end = time.monotonic() + HANG_SECONDS
    while (info := running.ask("GET", f"/v1/tasks/{task}?wait=5").json)["state"] != "ready":
        assert info["state"] != "failed", info
        assert time.monotonic() < end, info
    found: dict[str, Any] = info["datasets"][0]
    return found


def events(reply: Reply) -> list[tuple[str, Any]]:
    """The events of a stream that has ended."""
    assert reply.status == 200, reply
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in reply.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_a_dataset_is_listed_and_found_by_its_reference(running: AgentProcess, source: Path) -> None:
    info = cached(running, source)
    (listed,) = running.ask("GET", "/v1/datasets").json
    assert (listed["dataset"], listed["version"], listed["path"]) == ("imgs", info["version"], info["path"])
    assert [lease["owner"] for lease in listed["leases"]] == ["task one"]
    for reference in ("imgs", f"imgs@{info['version']}", "_local/imgs"):
        (found,) = running.ask("GET", f"/v1/datasets?reference={reference}").json
        assert found["path"] == listed["path"], reference
        assert found["last_used"] > listed["last_used"], reference
    missing = running.ask("GET", "/v1/datasets?reference=other")
    assert (missing.status, missing.json["type"]) == (404, "https://dsagent.io/problems/not-cached")
    assert running.ask("GET", "/v1/datasets?reference=../imgs").status == 400


def test_a_plan_says_what_a_caching_would_do(running: AgentProcess, source: Path) -> None:
    asked = {"dataset": {"source": str(source)}}
    plan = running.ask("POST", "/v1/plan", asked).json
    assert (plan["outcome"], plan["files"], plan["dataset"]) == ("fetched", 20, "imgs")
    assert running.ask("GET", "/v1/datasets").json == []
    cached(running, source)
    assert running.ask("POST", "/v1/plan", asked).json["outcome"] in ("hit", "updated")  # a young listing is not sure


def test_verify_finds_a_bad_file_and_repairs_it(running: AgentProcess, source: Path) -> None:
    bad = Path(cached(running, source)["path"]) / "deep" / "3.bin"
    stamp = bad.stat()
    bad.chmod(0o644)
    bad.write_bytes(b"x" * 5000)
    os.utime(bad, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    bad.chmod(0o444)
    kind, result = events(running.ask("POST", "/v1/verify", {"reference": "imgs"}))[-1]
    assert kind == "result"
    assert [one["path"] for one in result["bad"]] == ["deep/3.bin"]
    assert result["repaired"] == 0
    kind, result = events(running.ask("POST", "/v1/verify", {"reference": "imgs", "repair": True}))[-1]
    assert (kind, result["repaired"]) == ("result", 1)
    assert bad.read_bytes() == (source / "deep" / "3.bin").read_bytes()
    assert running.ask("POST", "/v1/verify", {"reference": "other"}).status == 404


def test_diff_compares_what_is_here_with_a_source(running: AgentProcess, source: Path) -> None:
    cached(running, source)
    (source / "deep" / "3.bin").unlink()
    (source / "new").write_text("new")
    asked = {"a": {"source": "imgs"}, "b": {"source": str(source)}}
    kind, result = events(running.ask("POST", "/v1/diff", asked))[-1]
    assert kind == "result", result
    assert (result["added"], result["removed"], result["changed"]) == (["new"], ["deep/3.bin"], [])
    kind, problem = events(running.ask("POST", "/v1/diff", {**asked, "b": {"source": "/nowhere"}}))[-1]
    assert (kind, problem["exit_code"]) == ("problem", 3)


def test_what_is_in_use_is_evicted_only_when_its_task_has_ended(running: AgentProcess, source: Path) -> None:
    cached(running, source)
    assert running.ask("POST", "/v1/evict", {"reference": "imgs"}).status == 409
    assert running.ask("DELETE", "/v1/tasks/one").status == 204
    dry = running.ask("POST", "/v1/evict", {"reference": "imgs", "dry_run": True}).json
    assert [one["dataset"] for one in dry["evicted"]] == ["imgs"]
    assert len(running.ask("GET", "/v1/datasets").json) == 1
    done = running.ask("POST", "/v1/evict", {"reference": "imgs"}).json
    assert done["evicted"] == dry["evicted"]
    assert running.ask("GET", "/v1/datasets").json == []
    for bad in ({}, {"reference": "imgs", "need": 1}, {"need": 1, "force": True}):
        assert running.ask("POST", "/v1/evict", bad).status == 400, bad


def test_a_lease_keeps_a_dataset_until_it_is_ended(running: AgentProcess, source: Path) -> None:
    cached(running, source)
    running.ask("DELETE", "/v1/tasks/one")
    made = running.ask("POST", "/v1/leases", {"reference": "imgs", "owner": "alice", "seconds": 60}).json
    assert (made["owner"], made["dataset"], made["file"]) == ("alice", "imgs", None)
    assert running.ask("POST", "/v1/evict", {"reference": "imgs"}).status == 409
    renewed = running.ask("PUT", "/v1/leases/imgs", {"owner": "alice", "seconds": 600}).json
    assert (renewed["id"], renewed["expires"] > made["expires"]) == (made["id"], True)
    assert running.ask("PUT", f"/v1/leases/_local/imgs@{made['version']}", {"seconds": 700}).json["id"] == made["id"]
    assert running.ask("DELETE", "/v1/leases/imgs?owner=bob").status == 404
    assert running.ask("DELETE", f"/v1/leases/{made['id']}").json["id"] == made["id"]
    assert running.ask("GET", "/v1/leases").json == []
    assert running.ask("POST", "/v1/evict", {"reference": "imgs"}).status == 200


def test_a_process_takes_a_lease_over_and_holds_it_until_it_closes_the_file(
    running: AgentProcess, source: Path
) -> None:
    cached(running, source)
    running.ask("DELETE", "/v1/tasks/one")
    made = running.ask("POST", "/v1/leases", {"reference": "imgs", "owner": "me", "seconds": None}).json
    assert made["expires"] is None
    assert running.ask("POST", "/v1/evict", {"reference": "imgs", "force": True}).status == 409, "the agent holds it"
    fd = os.open(running.root / made["file"], os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    assert running.ask("PUT", f"/v1/leases/{made['id']}/held").json["id"] == made["id"]
    assert running.ask("POST", "/v1/evict", {"reference": "imgs", "force": True}).status == 409, "this process does"
    os.close(fd)
    assert running.ask("PUT", f"/v1/leases/{made['id']}/held").status == 404
    assert running.ask("POST", "/v1/evict", {"reference": "imgs"}).status == 200


def test_the_node_says_its_room_its_health_and_its_limits(running: AgentProcess, source: Path) -> None:
    assert running.ask("GET", "/v1/disk").json["root"] == str(running.root)
    assert {one["status"] for one in running.ask("GET", "/v1/doctor").json} == {"ok"}
    info = cached(running, source)
    assert {one["status"] for one in running.ask("POST", "/v1/doctor/rebuild").json} == {"ok"}
    assert [one["version"] for one in running.ask("GET", "/v1/datasets").json] == [info["version"]]
    assert running.ask("GET", "/v1/limits").json["bandwidth"] == 0
    assert running.ask("PATCH", "/v1/limits", {"bandwidth": 12_000_000}).json["bandwidth"] == 12_000_000
    assert running.ask("GET", "/v1/limits").json["bandwidth"] == 12_000_000
    assert running.ask("PATCH", "/v1/limits", {"bandwidth": -1}).status == 422
