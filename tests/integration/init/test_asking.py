"""dsagent-init against an agent that says exactly what a test wants, over a real socket."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.agent import Answer, FakeAgent, answer, dataset, problem
from tests.integration.init.conftest import CANARY, OTHER_VERSION, S3, ready
from tests.support.init import UID, Pod
from tests.support.processes import children
from tests.support.waiting import until


def test_asks_waits_and_links(pod: Pod, serving: FakeAgent, tree: Path, source: Path) -> None:
    done = pod.run()
    assert done.code == 0, done
    assert pod.linked("images") == str(tree)
    assert done.out.count("\n") == 1
    assert "images hit, 7 B in 1 files" in done.out
    (put,) = serving.asked
    assert (put.method, put.path) == ("PUT", f"/v1/tasks/{UID}")
    assert put.body == {
        "owner": {"namespace": "research", "name": "train-0", "uid": UID},
        "datasets": [
            {
                "name": "images",
                "source": str(source),
                "version": None,
                "options": {},
                "credentials": {},
                "cluster": False,
            }
        ],
        "on_failure": "fail",
    }
    assert "Authorization" not in put.headers


def test_shows_progress_and_what_was_fetched(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    amounts = {"bytes_total": 147_000_000_000, "bytes_done": 63_210_000_000, "files_total": 1000, "files_done": 431}
    serving.make = lambda _: [dataset("images", "running", **amounts, rate=1.1e9, eta_seconds=77.0)]
    client = pod.start()
    client.until("images: 43 %, 63 GB of 147 GB, 431 of 1,000 files, 1.1 GB/s, ETA 1 min 17 s\n")
    serving.show(
        UID, ready(tree, outcome="fetched", files=1000, bytes=147 * 10**9, fetched_bytes=19 * 10**9, seconds=80.0)
    )
    done = client.end()
    assert done.code == 0, done
    assert "images fetched, 19 GB for 147 GB in 1,000 files, 1 min 20 s" in done.out


def test_what_holds_for_all_datasets_is_said_once(pod: Pod, serving: FakeAgent, source: Path, tree: Path) -> None:
    full = problem(4, "they do not fit")
    serving.make = lambda _: [dataset("images", "pending", error=full), dataset("coco", "pending", error=full)]
    client = pod.having(DSAGENT_DATASETS=f"images={source},coco={source}").start()
    client.until("images, coco: waiting: they do not fit\n")
    serving.show(UID, ready(tree), {**ready(tree), "name": "coco"})
    assert client.end().code == 0


def test_says_what_an_update_kept_left_out_and_evicted(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    evicted = [{"dataset": "old", "version": OTHER_VERSION, "bytes": 1}]
    how = {"outcome": "updated", "files": 10, "reused_files": 9, "fetched_bytes": 5, "skipped_special": 2}
    serving.make = lambda _: [ready(tree, **how, evicted=evicted)]
    done = pod.run()
    assert "images updated, 5 B fetched, 9 of 10 files kept" in done.out
    assert "2 special entries left out, 1 evicted for it" in done.out


@pytest.mark.parametrize("code", [1, 3, 5, 6, 10, 13])
def test_a_failed_dataset_gives_its_exit_code(pod: Pod, serving: FakeAgent, code: int) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(code, "cannot read it: gone; look\nthere"))]
    done = pod.run()
    assert done.code == code
    assert done.err == "dsagent-init: images: cannot read it: gone; look there\n"
    assert not pod.datasets.exists()


def test_space_that_does_not_come_in_time(pod: Pod, serving: FakeAgent) -> None:
    numbers = "cannot cache images: 120 GB are needed, 40 GB are free, 80 GB leased"
    serving.make = lambda _: [dataset("images", "pending", error=problem(4, numbers))]
    done = pod.having(DSAGENT_TIMEOUT="1s").run()
    assert done.code == 4, done
    assert done.err.count(f"images: waiting: {numbers}\n") == 1
    assert f"images still waits for space after 1.0 s (DSAGENT_TIMEOUT): {numbers}" in done.err


@pytest.mark.parametrize("state", ["pending", "running"])
def test_data_that_do_not_come_in_time(pod: Pod, serving: FakeAgent, state: str) -> None:
    serving.make = lambda _: [dataset("images", state)]
    done = pod.having(DSAGENT_TIMEOUT="1s").run()
    assert done.code == 9, done
    assert f"not ready after 1.0 s (DSAGENT_TIMEOUT): images ({state}); the agent goes on" in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_client_and_not_the_task(
    pod: Pod, serving: FakeAgent, tree: Path, number: int, code: int
) -> None:
    serving.make = lambda _: [dataset("images", "running")]
    client = pod.start()
    until(lambda: serving.count("GET") > 0)
    client.process.send_signal(number)
    done = client.end()
    assert (done.code, "the agent goes on" in done.err) == (code, True), done
    assert {one.method for one in serving.asked} == {"PUT", "GET"}
    serving.show(UID, ready(tree))
    assert pod.run().code == 0
    assert len(serving.tasks) == 1


@pytest.mark.needs("root", "mount")
def test_a_signal_ends_the_first_process_of_a_container(pod: Pod, serving: FakeAgent) -> None:
    serving.make = lambda _: [dataset("images", "running")]
    client = replace(pod, prefix=["unshare", "--pid", "--fork"]).start()
    until(lambda: serving.count("GET") > 0)
    (first,) = children(client.process.pid)
    os.kill(first, signal.SIGTERM)
    assert client.end().code == 143


def test_start_returns_and_wait_goes_on(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    serving.make = lambda _: [dataset("images", "running")]
    started = pod.run("start")
    assert (started.code, "images is running" in started.out) == (0, True), started
    assert not pod.datasets.exists()
    client = pod.start("wait")
    until(lambda: serving.count("GET") > 0)
    serving.show(UID, ready(tree))
    done = client.end()
    assert (done.code, pod.linked("images"), serving.count("PUT")) == (0, str(tree), 1), done


def test_wait_asks_if_nobody_has(pod: Pod, serving: FakeAgent) -> None:
    done = pod.run("wait")
    assert done.code == 0, done
    assert [one.method for one in serving.asked] == ["GET", "PUT"]


def test_wait_lets_a_failed_task_try_again(pod: Pod, serving: FakeAgent) -> None:
    serving.show(UID, dataset("images", "failed", error=problem(3, "gone")))
    done = pod.run("wait")
    assert done.code == 0, done
    assert [one.method for one in serving.asked] == ["GET", "PUT"]
    assert serving.asked[0].path.endswith("wait=0.000")


def test_start_says_what_fails_at_once(pod: Pod, serving: FakeAgent) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(4, "it could never fit"))]
    done = pod.run("start")
    assert (done.code, "it could never fit" in done.err) == (4, True), done


def test_the_token_is_read_for_each_request(pod: Pod, serving: FakeAgent, scratch: Path, tree: Path) -> None:
    token = scratch / "token"
    token.write_text("first\n")
    serving.make = lambda _: [dataset("images", "pending")]
    client = pod.having(DSAGENT_TOKEN_FILE=str(token)).start()
    until(lambda: serving.count("GET") > 0)
    token.write_text("second\n")
    serving.show(UID, dataset("images", "running"))
    until(lambda: serving.asked[-1].headers["Authorization"] == "Bearer second")
    serving.show(UID, ready(tree))
    assert client.end().code == 0
    assert serving.asked[0].headers["Authorization"] == "Bearer first"


@pytest.mark.parametrize(
    "content", [None, b"", f"{CANARY}\nsecond".encode(), f"{CANARY} second".encode(), b"\xff" + CANARY.encode()]
)
def test_a_file_that_holds_no_token(pod: Pod, serving: FakeAgent, scratch: Path, content: bytes | None) -> None:
    if content is not None:
        (scratch / "token").write_bytes(content)
    done = pod.having(DSAGENT_TOKEN_FILE=str(scratch / "token")).run()
    assert (done.code, "DSAGENT_TOKEN_FILE names" in done.err) == (2, True), done
    assert CANARY not in str(done)


def test_secrets_are_not_shown(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    secret = pod.having(DSAGENT_DATASETS=f"images=webhdfs://user:{CANARY}@host/images,coco=s3://bucket/coco", **S3)
    pending = {"state": "pending", "datasets": [dataset("images", "pending"), dataset("coco", "pending")]}
    ends = [
        [answer(503, problem(7, "later"))],
        [Answer(200, None), Answer(200, b"<html>")],
        [answer(401, problem(11, "no"))],
        [answer(200, pending), answer(200, {**pending, "datasets": []})],
    ]
    for answers in ends:
        serving.tasks.clear()
        serving.answers = answers
        done = secret.having(DSAGENT_ON_FAILURE="source", DSAGENT_TIMEOUT="2s").run()
        assert done.code != 0
        assert CANARY not in str(done)
    assert any(CANARY in str(one.body) for one in serving.asked)
    assert CANARY not in str(secret.having(DSAGENT_MODE="local").run())
    shown = [path for path in secret.folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert shown == []
