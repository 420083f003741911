"""What an agent makes of tasks: shared flights, whole tasks or nothing, fair shares, limits, ends."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import trees
from tests.support.agents import AgentProcess, agent
from tests.support.command import HANG_SECONDS
from tests.support.devices import ext4
from tests.support.waiting import until

SMALL, LARGE = 300, 4000


@pytest.fixture
def served(scratch: Path) -> Iterator[AgentProcess]:
    with agent(scratch / "root", "--keep-free", "0B", "--workers", "2") as running:
        yield running


def request(*sources: Path, **fields: Any) -> dict[str, Any]:
    """The body of a task."""
    return {
        "owner": {"name": "a pod", "uid": "its uid"},
        "datasets": [{"source": str(source)} for source in sources],
        **fields,
    }


def put(running: AgentProcess, task: str, *sources: Path, **fields: Any) -> Any:
    reply = running.ask("PUT", f"/v1/tasks/{task}", request(*sources, **fields))
    assert reply.status == 200, reply.body
    return reply.json


def get(running: AgentProcess, task: str) -> Any:
    return running.ask("GET", f"/v1/tasks/{task}").json


def wait(running: AgentProcess, task: str, *states: str) -> Any:
    """The task once it is in one of the states; fails if it ends in another."""
    end = time.monotonic() + HANG_SECONDS
    while (info := get(running, task))["state"] not in states:
        assert info["state"] not in ("ready", "failed"), info
        assert time.monotonic() < end, info
        running.ask("GET", f"/v1/tasks/{task}?wait=1")
    return info


def metric(running: AgentProcess, name: str) -> float:
    lines = running.ask("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def source(folder: Path, files: int = SMALL, seed: int = 0, largest: int = 3000) -> Path:
    trees.make_files(folder, files, seed, largest=largest)
    return folder


@contextmanager
def small_disk(scratch: Path) -> Iterator[AgentProcess]:
    """An agent whose root has room for one of two datasets."""
    with (
        ext4(scratch / "image", scratch / "disk", 16 << 20) as disk,
        agent(disk / "root", "--keep-free", "0B") as served,
    ):
        yield served


def test_a_task_brings_its_datasets_and_leases_them(served: AgentProcess, scratch: Path) -> None:
    a, b = source(scratch / "a"), source(scratch / "b", seed=1)
    put(served, "pod-1", a, b)
    info = wait(served, "pod-1", "ready")
    for one, origin in zip(info["datasets"], (a, b), strict=True):
        assert (one["outcome"], one["files"]) == ("fetched", SMALL)
        trees.assert_published(Path(one["path"]), trees.look(origin))
        link = served.root / "pods" / "pod-1" / one["name"]
        assert link.resolve() == Path(one["path"])
        assert not link.readlink().is_absolute()
    refused = served.ask("POST", "/v1/evict", {"reference": "a"})
    assert (refused.status, refused.json["exit_code"]) == (409, 8)


def test_the_same_again_is_the_same_task_and_another_body_is_refused(served: AgentProcess, scratch: Path) -> None:
    a = source(scratch / "a")
    put(served, "t", a)
    first = wait(served, "t", "ready")
    assert put(served, "t", a) == first
    reply = served.ask("PUT", "/v1/tasks/t", request(a, source(scratch / "b")))
    assert (reply.status, reply.json["exit_code"]) == (409, 8)
    assert get(served, "t") == first


def test_tasks_that_need_the_same_share_one_listing_and_one_flight(scratch: Path) -> None:
    a = source(scratch / "a", LARGE)
    with agent(scratch / "root", "--keep-free", "0B", "--bandwidth", "20MB") as served:
        replies: list[Any] = []
        threads = [threading.Thread(target=lambda n=n: replies.append(put(served, f"t{n}", a))) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        infos = [wait(served, f"t{number}", "ready") for number in range(20)]
        assert {info["datasets"][0]["path"] for info in infos} == {infos[0]["datasets"][0]["path"]}
        assert metric(served, "dsagent_listings_total") == 1
        assert metric(served, "dsagent_datasets_total") == 1
        for number in range(20):  # each has a lease of its own
            refused = served.ask("POST", "/v1/evict", {"reference": "a", "force": True})
            assert refused.status == 409, number
            assert served.ask("DELETE", f"/v1/tasks/t{number}").status == 204
        assert served.ask("POST", "/v1/evict", {"reference": "a"}).status == 200


@pytest.mark.needs("root", "mount", "ext4")
def test_a_task_that_could_never_fit_fails_at_once(scratch: Path) -> None:
    a, b = source(scratch / "a", 1500, largest=8000), source(scratch / "b", 1500, 1, largest=8000)
    with small_disk(scratch) as served:
        put(served, "both", a, b)
        info = wait(served, "both", "failed")
        assert {one["error"]["exit_code"] for one in info["datasets"]} == {4}
        assert not list(served.root.glob("versions/*/*"))
        put(served, "one", a)
        wait(served, "one", "ready")


@pytest.mark.needs("root", "mount", "ext4")
def test_a_task_waits_for_leases_to_end_and_says_for_what(scratch: Path) -> None:
    a, b = source(scratch / "a", 1500, largest=8000), source(scratch / "b", 1500, 1, largest=8000)
    with small_disk(scratch) as served:
        put(served, "first", a)
        wait(served, "first", "ready")
        put(served, "second", b)
        until(lambda: get(served, "second")["datasets"][0]["error"])
        info = get(served, "second")
        assert info["state"] == "pending"
        assert info["datasets"][0]["error"]["exit_code"] == 4
        assert "leased" in info["datasets"][0]["error"]["cause"]
        assert not list(served.root.glob("staging/*/data/*"))
        assert served.ask("DELETE", "/v1/tasks/first").status == 204
        info = wait(served, "second", "ready")
        assert [one["dataset"] for one in info["datasets"][0]["evicted"]] == ["a"]


def test_ten_tasks_survive_a_kill_in_the_middle(scratch: Path) -> None:
    sources = [source(scratch / f"s{number}", 600, number) for number in range(10)]
    with agent(scratch / "root", "--keep-free", "0B", "--bandwidth", "2MB", "--tasks", "4") as served:
        for number, one in enumerate(sources):
            put(served, f"t{number}", one)
        until(lambda: any(get(served, f"t{number}")["state"] == "ready" for number in range(10)))
        served.kill()
        served.flags = ("--keep-free", "0B")
        served.start()
        for number, one in enumerate(sources):
            info = wait(served, f"t{number}", "ready")
            trees.assert_published(Path(info["datasets"][0]["path"]), trees.look(one))
        assert not list((served.root / "staging").iterdir())


def test_a_drained_agent_loses_nothing(scratch: Path) -> None:
    a = source(scratch / "a", LARGE)
    with agent(scratch / "root", "--keep-free", "0B", "--bandwidth", "1MB", "--drain", "1s") as served:
        put(served, "t", a)
        wait(served, "t", "running")
        until(lambda: trees.count_files(served.root / "staging") > 100)
        assert served.stop() == 0
        served.flags = ("--keep-free", "0B")
        served.start()
        info = wait(served, "t", "ready")
        assert info["datasets"][0]["fetched_bytes"] < info["datasets"][0]["bytes"]
        trees.assert_published(Path(info["datasets"][0]["path"]), trees.look(a))


def test_a_deleted_task_cancels_what_nobody_else_needs(scratch: Path) -> None:
    a, b = source(scratch / "a", LARGE), source(scratch / "b", LARGE, 1)
    with agent(scratch / "root", "--keep-free", "0B", "--bandwidth", "2MB") as served:
        put(served, "both", a, b)
        put(served, "one", a)
        wait(served, "both", "running")
        until(lambda: len(list(served.root.glob("staging/*/data"))) == 2)
        assert served.ask("DELETE", "/v1/tasks/both").status == 204
        assert served.ask("GET", "/v1/tasks/both").status == 404
        assert served.ask("PATCH", "/v1/limits", {"bandwidth": 0}).status == 200
        wait(served, "one", "ready")
        assert [info["dataset"] for info in served.ask("GET", "/v1/datasets").json] == ["a"]
        assert not (served.root / "pods" / "both").exists()


def test_a_huge_dataset_does_not_starve_a_small_one(scratch: Path) -> None:
    huge, small = source(scratch / "huge", 3 * LARGE), source(scratch / "small", 400, 1)
    with agent(scratch / "root", "--keep-free", "0B", "--bandwidth", "3MB") as served:
        put(served, "huge", huge)
        wait(served, "huge", "running")
        put(served, "small", small)
        wait(served, "small", "ready")
        assert get(served, "huge")["state"] == "running"


def test_pods_go_before_prefetches(scratch: Path) -> None:
    sources = [source(scratch / f"s{number}", SMALL, number) for number in range(3)]
    with agent(scratch / "root", "--keep-free", "0B", "--tasks", "1", "--bandwidth", "200KB") as served:
        put(served, "first", sources[0])
        wait(served, "first", "running")
        put(served, "early", sources[1], prefetch=True)
        put(served, "pod", sources[2])
        until(lambda: not any(p["state"] == "resolving" for p in served.ask("GET", "/v1/tasks").json))
        assert served.ask("PATCH", "/v1/limits", {"bandwidth": 400_000}).status == 200
        wait(served, "pod", "ready")
        assert get(served, "early")["state"] != "ready"
        assert served.ask("PATCH", "/v1/limits", {"bandwidth": 0}).status == 200
        wait(served, "early", "ready")


def test_a_task_that_is_kept_for_a_time_ends_by_itself(served: AgentProcess, scratch: Path) -> None:
    put(served, "t", source(scratch / "a"), keep_seconds=0.5)
    wait(served, "t", "ready")
    until(lambda: served.ask("GET", "/v1/tasks/t").status == 404)
    assert served.ask("POST", "/v1/evict", {"reference": "a"}).status == 200


def test_a_failed_task_is_tried_again_when_it_is_put_again(served: AgentProcess, scratch: Path) -> None:
    missing = scratch / "missing"
    put(served, "t", missing)
    assert wait(served, "t", "failed")["datasets"][0]["error"]["exit_code"] == 3
    source(missing)
    put(served, "t", missing)
    wait(served, "t", "ready")


def test_two_datasets_of_one_name_in_a_task_are_refused(served: AgentProcess, scratch: Path) -> None:
    a, b = source(scratch / "x" / "same"), source(scratch / "y" / "same", seed=1)
    put(served, "t", a, b)
    info = wait(served, "t", "failed")
    until(lambda: sorted(one["state"] for one in get(served, "t")["datasets"]) == ["failed", "ready"])
    (failed,) = [one for one in get(served, "t")["datasets"] if one["state"] == "failed"]
    assert failed["error"]["exit_code"] == 2, info


def test_what_was_evicted_behind_the_agents_back_is_brought_anew(served: AgentProcess, scratch: Path) -> None:
    a = source(scratch / "a")
    put(served, "t", a, keep_seconds=600)
    first = wait(served, "t", "ready")
    served.ask("DELETE", "/v1/tasks/t")
    assert served.ask("POST", "/v1/evict", {"reference": "a"}).status == 200
    put(served, "u", a)
    second = wait(served, "u", "ready")
    assert second["datasets"][0]["outcome"] == "fetched"
    assert second["datasets"][0]["version"] == first["datasets"][0]["version"]
    trees.assert_published(Path(second["datasets"][0]["path"]), trees.look(a))
