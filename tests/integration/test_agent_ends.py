"""Ends of tasks: beside a PUT of the same id, and where they fail half-way."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsagent.adapters.throttle import Throttle
from dsagent.agent.agent import Agent, Shares
from dsagent.agent.book import Book
from dsagent.agent.events import Event, EventLog
from dsagent.agent.tasks import TaskSpec, Wanted
from dsagent.core.errors import NotCached
from dsagent.core.ports import Location
from dsagent.core.tasks import Owner, TaskInfo
from dsagent.service.origins import CacheRequest
from dsagent.service.settings import Settings
from dsagent.wiring import local_agent
from tests.support import trees
from tests.support.agents import AgentProcess, agent
from tests.support.command import HANG_SECONDS
from tests.support.devices import ext4
from tests.support.nodes import node_at
from tests.support.waiting import until

ROUNDS = 60


def put(served: AgentProcess, task: str, *sources: Path, **fields: Any) -> int:
    body = {"owner": {"name": "a test"}, "datasets": [{"source": str(one)} for one in sources], **fields}
    return served.ask("PUT", f"/v1/tasks/{task}", body).status


def ready(served: AgentProcess, task: str) -> None:
    end = time.monotonic() + HANG_SECONDS
    while (info := served.ask("GET", f"/v1/tasks/{task}?wait=1").json)["state"] != "ready":
        assert info["state"] != "failed", info
        assert time.monotonic() < end, info


@pytest.mark.needs("root")
def test_a_task_that_is_put_beside_its_end_has_its_leases_or_is_gone(scratch: Path) -> None:
    for name in ("a", "b", "c"):
        trees.make_files(scratch / name, 30)
    wanted = [scratch / "a", scratch / "b", scratch / "c"]
    with agent(scratch / "root", "--keep-free", "0B") as served:
        put(served, "kept", *wanted)
        ready(served, "kept")
        put(served, "t", *wanted)
        for number in range(ROUNDS):
            both = [
                threading.Thread(target=served.ask, args=("DELETE", "/v1/tasks/t")),
                threading.Thread(target=put, args=(served, "t", *wanted)),
            ]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join()
            links = served.root / "pods" / "t"
            if served.ask("GET", "/v1/tasks/t").status == 404:
                assert not links.exists(), number
                assert not (served.root / "tasks" / "t.json").exists(), number
                put(served, "t", *wanted)
            ready(served, "t")
            assert {link.name for link in links.iterdir()} == {"a", "b", "c"}, number
            assert all(link.is_dir() for link in links.iterdir()), number
            assert (served.root / "tasks" / "t.json").exists(), number


@pytest.mark.needs("root")
def test_an_end_that_fails_half_way_can_be_asked_for_again(scratch: Path) -> None:
    """A task whose leases are there is never forgotten, or nobody could end them."""
    trees.make_files(scratch / "a", 30)
    with agent(scratch / "root", "--keep-free", "0B") as served:
        put(served, "t", scratch / "a")
        ready(served, "t")
        (served.root / "pods" / "t" / "in the way" / "of it").mkdir(parents=True)
        assert served.ask("DELETE", "/v1/tasks/t").status >= 400
        served.kill()
        served.start()
        ready(served, "t")
        assert served.ask("DELETE", "/v1/tasks/t").status >= 400
        shutil.rmtree(served.root / "pods" / "t" / "in the way")
        assert served.ask("DELETE", "/v1/tasks/t").status == 204
        assert not (served.root / "pods" / "t").exists()
        assert served.ask("POST", "/v1/evict", {"reference": "a"}).status == 200


@pytest.mark.needs("root")
def test_leases_are_read_while_tasks_end(scratch: Path) -> None:
    trees.make_files(scratch / "a", 3)
    with agent(scratch / "root", "--keep-free", "0B") as served:
        put(served, "kept", scratch / "a")
        ready(served, "kept")
        stop = threading.Event()

        def come_and_go(task: str) -> None:
            while not stop.is_set():
                put(served, task, scratch / "a")
                served.ask("DELETE", f"/v1/tasks/{task}")

        threads = [threading.Thread(target=come_and_go, args=(f"t{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(ROUNDS):
                reply = served.ask("GET", "/v1/leases")
                assert reply.status == 200, reply
                assert "pods/kept" in {one["id"] for one in reply.json}
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_an_agent_may_end_at_the_moment_when_a_flight_begins(scratch: Path) -> None:
    trees.make_files(scratch / "a", 300)
    ours = local_agent(Settings(scratch / "root", keep_free=0, workers=1), Shares(1, 1), Throttle())
    ended, errors = threading.Event(), []

    def end(event: Event) -> None:
        if isinstance(event.document, TaskInfo) and event.document.state == "running" and not ended.is_set():
            try:
                ours.close(0.0)
            except RuntimeError as error:
                errors.append(error)
            ended.set()

    ours.events.listen(end)
    ours.start()
    request = CacheRequest(Location(str(scratch / "a")))
    ours.put(TaskSpec("t", Owner("_local", "a test", ""), (Wanted(request),)))
    assert ended.wait(HANG_SECONDS)
    assert errors == []
    until(lambda: not ours.running())


def test_who_ends_an_agent_waits_for_a_flight_that_is_just_beginning(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.make_files(scratch / "a", 300)
    ours = local_agent(Settings(scratch / "root", keep_free=0, workers=1), Shares(1, 1), Throttle())
    errors: list[Exception] = []

    def close() -> None:
        try:
            ours.close(0.0)
        except RuntimeError as error:
            errors.append(error)

    closing = threading.Thread(target=close)
    start = threading.Thread.start

    def late(thread: threading.Thread) -> None:
        if thread.name == "flight":
            start(closing)
            closing.join(0.2)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    ours.start()
    ours.put(TaskSpec("t", Owner("_local", "a test", ""), (Wanted(CacheRequest(Location(str(scratch / "a")))),)))
    until(lambda: closing.ident is not None)
    closing.join(HANG_SECONDS)
    assert errors == []
    until(lambda: not ours.running())


def spec(task: str, *sources: Path) -> TaskSpec:
    wanted = tuple(Wanted(CacheRequest(Location(str(one)), check="never")) for one in sources)
    return TaskSpec(task, Owner("_local", "a test", ""), wanted)


@pytest.fixture
def half_failed(scratch: Path) -> Iterator[Agent]:
    """An agent with the task `half`, of which `missing` has failed before `a` had its turn. Nothing moves."""
    trees.make_files(scratch / "slow", 400)
    trees.make_files(scratch / "a", 3)
    throttle = Throttle()
    throttle.rate = 100_000
    ours = local_agent(Settings(scratch / "root", keep_free=0, workers=1), Shares(1, 1), throttle)
    ours.start()
    try:
        ours.put(spec("slow", scratch / "slow"))
        until(lambda: ours.get("slow").state == "running")
        ours.put(spec("half", scratch / "a", scratch / "missing"))
        until(lambda: ours.get("half").state == "failed")
        until(lambda: [one.phase for one in ours._errands.values()].count("waiting") == 1)
        throttle.rate = 0
        until(lambda: ours.get("slow").state == "ready" and not ours.running())
        time.sleep(0.1)  # whoever admits has looked and found nobody
        yield ours
    finally:
        throttle.rate = 0
        ours.close(1.0)


def test_what_a_failed_task_waits_for_comes_for_the_next_one(half_failed: Agent, scratch: Path) -> None:
    half_failed.put(spec("next", scratch / "a"))
    until(lambda: half_failed.get("next").state == "ready")


def test_a_failed_task_goes_on_where_it_was_when_what_it_missed_is_here(half_failed: Agent, scratch: Path) -> None:
    trees.make_files(scratch / "missing", 3)
    half_failed.put(spec("other", scratch / "missing"))
    until(lambda: half_failed.get("other").state == "ready")
    time.sleep(0.1)  # as above
    half_failed.put(spec("half", scratch / "a", scratch / "missing"))
    until(lambda: half_failed.get("half").state == "ready")


def test_a_ready_task_is_where_the_root_was_moved_to(scratch: Path) -> None:
    trees.make_files(scratch / "a", 3)
    root = scratch / "root"
    for place in (root, scratch / "moved"):
        ours = local_agent(Settings(place, keep_free=0, workers=1), Shares(1, 1), Throttle())
        ours.start()
        if place == root:
            ours.put(spec("t", scratch / "a"))
        until(lambda: ours.get("t").state == "ready")  # noqa: B023 - it is asked at once
        (info,) = ours.get("t").datasets
        assert info.path is not None
        assert Path(info.path).is_relative_to(place)
        assert Path(info.path).is_dir()
        ours.close(0.0)
        if place == root:
            root.rename(scratch / "moved")


def test_a_task_that_ends_while_it_is_put_again_is_a_new_one(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.make_files(scratch / "a", 3)
    ours = local_agent(Settings(scratch / "root", keep_free=0, workers=1), Shares(1, 1), Throttle())
    ours.start()
    ours.put(spec("t", scratch / "missing"))
    until(lambda: ours.get("t").state == "failed")
    trees.make_files(scratch / "missing", 3)
    enter = Book.enter

    def entered(book: Book, wanted: TaskSpec) -> Any:
        task = enter(book, wanted)
        monkeypatch.undo()
        ours.delete("t")
        return task

    monkeypatch.setattr(Book, "enter", entered)
    ours.put(spec("t", scratch / "missing"))
    until(lambda: ours.get("t").state == "ready")
    ours.close(0.0)


@pytest.mark.needs("root")
def test_a_task_that_cannot_end_holds_up_no_other(scratch: Path) -> None:
    trees.make_files(scratch / "a", 3)
    with agent(scratch / "root", "--keep-free", "0B") as served:
        put(served, "t", scratch / "a", keep_seconds=0.5)
        (served.root / "pods" / "t" / "in the way" / "of it").mkdir(parents=True)
        put(served, "u", scratch / "a", keep_seconds=1)
        until(lambda: served.ask("GET", "/v1/tasks/u").status == 404)
        assert served.ask("GET", "/v1/tasks/t").status == 200
        shutil.rmtree(served.root / "pods" / "t" / "in the way")
        until(lambda: served.ask("GET", "/v1/tasks/t").status == 404)


@pytest.mark.needs("root", "mount", "ext4")
def test_folders_that_somebody_removed_are_made_again(scratch: Path) -> None:
    """As an administrator may who needs room, on a disk that is full."""
    trees.make_files(scratch / "a", 1500, largest=8000)
    trees.make_files(scratch / "b", 1500, 1, largest=8000)
    with (
        ext4(scratch / "image", scratch / "disk", 16 << 20) as disk,
        agent(disk / "root", "--keep-free", "0B") as served,
    ):
        put(served, "a", scratch / "a")
        ready(served, "a")
        assert served.ask("DELETE", "/v1/tasks/a").status == 204
        for folder in ("staging", "trash"):
            (served.root / folder).rmdir()
        put(served, "b", scratch / "b")  # a has to go for it
        ready(served, "b")
        (served.root / "staging").rmdir()
        assert served.ask("GET", "/v1/datasets").status == 200


@pytest.mark.needs("root")
def test_who_asks_for_the_same_in_another_way_holds_up_no_other(scratch: Path) -> None:
    trees.make_files(scratch / "a", 2000)
    trees.make_files(scratch / "b", 10)
    with agent(scratch / "root", "--keep-free", "0B", "--bandwidth", "300KB") as served:
        put(served, "a", scratch / "a")
        until(lambda: served.ask("GET", "/v1/tasks/a").json["state"] == "running")
        other = {"source": str(scratch / "a"), "options": {"check": "content"}}
        served.ask("PUT", "/v1/tasks/other", {"owner": {"name": "a test"}, "datasets": [other]})
        put(served, "b", scratch / "b")
        ready(served, "b")
        assert served.ask("GET", "/v1/tasks/a").json["state"] == "running"
        assert served.ask("PATCH", "/v1/limits", {"bandwidth": 0}).status == 200
        ready(served, "a")
        ready(served, "other")


def test_the_end_of_a_task_that_is_over_leaves_a_new_one_of_its_id_alone(scratch: Path) -> None:
    book = Book(node_at(scratch / "root"), EventLog())
    spec = TaskSpec("t", Owner("_local", "a test", ""), (Wanted(CacheRequest(Location(str(scratch / "a")))),))
    over = book.enter(spec)
    book.end("t", lambda _part, _id: None)
    book.enter(spec)
    with pytest.raises(NotCached):
        book.end("t", lambda _part, _id: None, over)
    assert "t" in book.tasks
