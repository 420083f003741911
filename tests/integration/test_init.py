"""dsagent-init against an agent that says exactly what a test wants, over a real socket."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.agent import Answer, Document, FakeAgent, answer, dataset, problem
from tests.support.command import HANG_SECONDS
from tests.support.init import UID, Pod
from tests.support.processes import children

CANARY = "canary-8d1f"
VERSION = "xxh3:" + "1" * 32
OTHER_VERSION = "xxh3:" + "2" * 32
S3 = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": CANARY, "AWS_SESSION_TOKEN": f"{CANARY}-token"}


@pytest.fixture
def agent(scratch: Path) -> FakeAgent:
    return FakeAgent(scratch / "agent.sock")


@pytest.fixture
def serving(agent: FakeAgent) -> Iterator[FakeAgent]:
    with agent.serving():
        yield agent


@pytest.fixture
def tree(scratch: Path) -> Path:
    """A version of `images` below a root, as the agent publishes it."""
    folder = scratch / "root" / "versions" / "research" / "images" / "abc"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "file").write_text("content")
    (folder / "manifest" / "manifests").mkdir(parents=True)
    (folder / "manifest" / "manifests" / f"{VERSION.partition(':')[2]}.json").write_text("{}")
    return folder / "data"


@pytest.fixture
def source(scratch: Path) -> Path:
    folder = scratch / "nfs" / "images"
    folder.mkdir(parents=True)
    (folder / "file").write_text("content")
    return folder


@pytest.fixture
def pod(scratch: Path, agent: FakeAgent, tree: Path, source: Path) -> Pod:
    environment = {"DSAGENT_AGENT": f"unix://{agent.socket}", "DSAGENT_DATASETS": f"images={source}"}
    agent.make = lambda body: [ready(tree) for _ in body["datasets"]]
    return Pod(scratch / "pod", environment)


def ready(tree: Path, **fields: Any) -> Document:
    return dataset("images", path=str(tree), version=VERSION, **fields)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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


def test_no_agent(pod: Pod, agent: FakeAgent) -> None:
    done = pod.having(DSAGENT_TIMEOUT="1s").run()
    assert done.code == 7, done
    assert f"cannot ask the agent at unix://{agent.socket}: there is no such socket, still after 1.0 s" in done.err
    assert "see that the agent runs on this node" in done.err


def test_a_socket_that_nobody_serves(pod: Pod, agent: FakeAgent) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(agent.socket))
    done = pod.having(DSAGENT_TIMEOUT="1s").run()
    assert (done.code, "nothing listens there" in done.err) == (7, True), done


@pytest.mark.needs("setpriv", "root")
def test_a_socket_for_others(pod: Pod, serving: FakeAgent) -> None:
    serving.socket.chmod(0o600)
    done = replace(pod, prefix=["setpriv", "--reuid=65534", "--clear-groups"]).run()
    assert (done.code, "run the container as a user who may" in done.err) == (11, True), done


def test_waits_for_an_agent_to_come(pod: Pod, agent: FakeAgent) -> None:
    client = pod.start()
    client.until("does not answer: there is no such socket; trying for another 2 h\n")
    with agent.serving():
        done = client.end()
    assert done.code == 0, done
    assert "the agent answers again" in done.err


def test_asks_again_when_the_agent_was_started_anew(pod: Pod, agent: FakeAgent, tree: Path) -> None:
    agent.make = lambda _: [dataset("images", "running")]
    with agent.serving():
        client = pod.having(DSAGENT_DATASETS="images=s3://bucket/images", **S3).start()
        wait_for(lambda: agent.count("GET") > 0)
    agent.make = lambda _: [ready(tree)]
    agent.tasks.clear()
    with agent.serving():
        done = client.end()
    assert done.code == 0, done
    puts = [one.body for one in agent.asked if one.method == "PUT"]
    assert len(puts) == 2
    assert puts[0] == puts[1]
    assert puts[1]["datasets"][0]["credentials"]["secret_access_key"] == CANARY


def test_sends_credentials_again_when_the_agent_waits_for_them(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    waiting = dataset("images", "pending", error=problem(11, "cannot open s3://bucket/images: no credentials any more"))
    serving.make = lambda _: [waiting]
    asking = answer(200, {"state": "pending", "datasets": [waiting]})
    serving.answers = [asking, asking, answer(200, {"state": "ready", "datasets": [ready(tree)]})]
    done = pod.having(DSAGENT_DATASETS="images=s3://bucket/images", **S3).run()
    assert done.code == 0, done
    assert [one.method for one in serving.asked] == ["PUT", "GET", "PUT"]


def test_sends_nothing_again_to_an_agent_that_waits_for_space(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    waiting = {"state": "pending", "datasets": [dataset("images", "pending", error=problem(4, "it is full"))]}
    done = {"state": "ready", "datasets": [ready(tree)]}
    serving.answers = [answer(200, waiting), answer(200, waiting), answer(200, done)]
    assert pod.having(DSAGENT_DATASETS="images=s3://bucket/images", **S3).run().code == 0
    assert [one.method for one in serving.asked] == ["PUT", "GET", "GET"]


def test_without_credentials_of_its_own_it_cannot_send_any(pod: Pod, serving: FakeAgent) -> None:
    waiting = dataset("images", "pending", error=problem(11, "cannot open s3://bucket/images: no credentials any more"))
    serving.make = lambda _: [waiting]
    done = pod.having(DSAGENT_DATASETS="images=s3://bucket/images", DSAGENT_TIMEOUT="1s").run()
    assert (done.code, serving.count("PUT")) == (9, 1), done
    assert "no credentials any more" in done.err.splitlines()[-1]


@pytest.mark.parametrize("status", [429, 503])
def test_comes_again_when_it_is_told_to(pod: Pod, serving: FakeAgent, status: int) -> None:
    serving.answers = [answer(status, problem(7, "the agent is recovering"), Retry_After="1")] * 2
    done = pod.run()
    assert done.code == 0, done
    assert "does not answer: the agent is recovering; trying" in done.err


def test_comes_again_when_the_end_of_the_agent_cut_its_answer_short(pod: Pod, serving: FakeAgent) -> None:
    serving.answers = [Answer(500, b"Internal Server Error")]
    assert pod.run().code == 0
    assert len(serving.asked) == 2


def test_an_agent_that_never_recovers(pod: Pod, serving: FakeAgent) -> None:
    serving.answers = [answer(503, problem(7, "the agent is recovering"))] * 99
    done = pod.having(DSAGENT_TIMEOUT="1s").run()
    assert (done.code, "the agent is recovering, still after 1.0 s" in done.err) == (7, True), done


@pytest.mark.parametrize(
    "cut",
    [Answer(200, None), Answer(200, b'{"state": "ready"', {"Content-Length": "1000", "Connection": "close"})],
    ids=["before the answer", "in the middle of the answer"],
)
def test_a_lost_connection_is_no_answer(pod: Pod, serving: FakeAgent, cut: Answer) -> None:
    serving.answers = [cut]
    done = pod.run()
    assert done.code == 0, done
    assert [one.method for one in serving.asked] == ["PUT", "PUT"]


def test_a_connection_that_the_agent_closes_is_not_lost(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    waiting = {"state": "pending", "datasets": [dataset("images", "pending")]}
    done = {"state": "ready", "datasets": [ready(tree)]}
    serving.answers = [answer(200, waiting, Connection="close"), answer(200, done)]
    assert pod.run().code == 0
    assert [one.method for one in serving.asked] == ["PUT", "GET"]


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        (Answer(200, b"<html>"), "what it sent is no task"),
        (answer(200, []), "what it sent is no task"),
        (Answer(200, b"[" * 100_000), "what it sent is no task"),
        (answer(200, {"state": "odd", "datasets": []}), "what it sent is no task"),
        (
            answer(200, {"state": "ready", "datasets": [{"name": "images", "state": "ready", "bytes": -1}]}),
            "no quantity",
        ),
        (answer(200, {"state": "ready", "datasets": [dataset("coco")]}), "lacks datasets that were asked for"),
        (Answer(404, b"<html>"), "it answered 404"),
        (Answer(302, b"", {"Location": "http://elsewhere"}), "it answered 302"),
        (Answer(200, b"", {"Content-Length": str(1 << 40)}), "what it sent is too long"),
    ],
)
def test_what_is_no_agent(pod: Pod, serving: FakeAgent, odd: Answer, cause: str) -> None:
    serving.answers = [odd]
    done = pod.run()
    assert (done.code, cause in done.err) == (7, True), done
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (401, 11, "the token is not valid"),
        (403, 11, "the source is not on the allow-list"),
        (409, 8, "it asks for other datasets already"),
        (422, 2, "datasets.0.options.chek: no such field"),
        (500, 1, "this is a bug in dsagent"),
    ],
)
def test_a_refusal_is_final(pod: Pod, serving: FakeAgent, status: int, code: int, text: str) -> None:
    serving.answers = [answer(status, problem(code, text))]
    done = pod.run()
    assert (done.code, text in done.err) == (code, True), done
    assert ("all init containers of a pod have to ask for the same datasets" in done.err) == (status == 409)
    assert len(serving.asked) == 1


def test_an_empty_directory_is_no_data(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    (tree / "file").unlink()
    done = pod.run()
    assert done.code == 13, done
    assert f"images is not where the agent says: {tree} is empty, but 1 files were promised" in done.err
    assert not pod.datasets.exists()


def test_a_version_without_files_may_be_empty(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    (tree / "file").unlink()
    serving.make = lambda _: [ready(tree, files=0, bytes=0)]
    done = pod.run()
    assert (done.code, pod.linked("images")) == (0, str(tree)), done


def test_another_version_is_not_the_data(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    serving.make = lambda _: [dataset("images", path=str(tree), version=OTHER_VERSION)]
    done = pod.run()
    assert (done.code, f"{tree} holds another version than {OTHER_VERSION}" in done.err) == (13, True), done
    assert not pod.datasets.exists()


def test_a_root_that_is_not_mounted_here(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    serving.make = lambda _: [ready(Path("/var/lib/nowhere"))]
    done = pod.run()
    assert done.code == 13, done
    assert "mount the cache's root into this container, read-only, at the same path" in done.err


def test_a_root_that_is_mounted_elsewhere(pod: Pod, serving: FakeAgent, tree: Path, scratch: Path) -> None:
    serving.make = lambda _: [ready(Path("/var/lib/nowhere"))]
    link = scratch / "root" / "pods" / UID / "images"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../versions/research/images/abc/data")
    mounted = pod.having(DSAGENT_ROOT=str(scratch / "root"))
    done = mounted.run()
    assert (done.code, pod.linked("images")) == (0, str(link)), done
    link.unlink()
    link.symlink_to("../not-ready")
    assert mounted.run().code == 13


def test_a_mount_that_only_the_job_has(pod: Pod, serving: FakeAgent) -> None:
    done = pod.having(DSAGENT_DATA_DIR="/run/dsagent/data/").run()
    assert (done.code, pod.linked("images")) == (0, "/run/dsagent/data/images"), done


def test_a_mount_of_the_tree_alone(pod: Pod, serving: FakeAgent, scratch: Path) -> None:
    serving.make = lambda _: [ready(Path("/var/lib/nowhere"))]
    mount = scratch / "data" / "images"
    mount.mkdir(parents=True)
    mounted = pod.having(DSAGENT_DATA_DIR=str(mount.parent))
    empty = mounted.run()
    assert (empty.code, f"{mount} is empty" in empty.err) == (13, True), empty
    (mount / "file").touch()
    done = mounted.run()
    assert (done.code, pod.linked("images")) == (0, str(mount)), done


def test_a_mount_of_something_else(pod: Pod, serving: FakeAgent, scratch: Path, source: Path) -> None:
    done = pod.having(DSAGENT_DATA_DIR=str(source.parent)).run()
    assert (done.code, f"{source} is another folder than" in done.err) == (13, True), done


def test_a_link_is_replaced_and_what_is_no_link_stays(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    pod.datasets.mkdir()
    (pod.datasets / "images").symlink_to("/elsewhere")
    (pod.datasets / ".images.new").symlink_to("/left/by/a/kill")
    assert pod.run().code == 0
    assert pod.linked("images") == str(tree)
    assert os.listdir(pod.datasets) == ["images"]
    (pod.datasets / "images").unlink()
    (pod.datasets / "images").mkdir()
    (pod.datasets / "images" / "mine").touch()
    done = pod.run()
    assert (done.code, "mount an emptyDir at" in done.err) == (1, True), done
    assert (pod.datasets / "images" / "mine").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_client_and_not_the_task(
    pod: Pod, serving: FakeAgent, tree: Path, number: int, code: int
) -> None:
    serving.make = lambda _: [dataset("images", "running")]
    client = pod.start()
    wait_for(lambda: serving.count("GET") > 0)
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
    wait_for(lambda: serving.count("GET") > 0)
    (first,) = children(client.process.pid)
    os.kill(first, signal.SIGTERM)
    assert client.end().code == 143


def test_start_returns_and_wait_goes_on(pod: Pod, serving: FakeAgent, tree: Path) -> None:
    serving.make = lambda _: [dataset("images", "running")]
    started = pod.run("start")
    assert (started.code, "images is running" in started.out) == (0, True), started
    assert not pod.datasets.exists()
    client = pod.start("wait")
    wait_for(lambda: serving.count("GET") > 0)
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
    wait_for(lambda: serving.count("GET") > 0)
    token.write_text("second\n")
    serving.show(UID, dataset("images", "running"))
    wait_for(lambda: serving.asked[-1].headers["Authorization"] == "Bearer second")
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


def test_the_job_may_read_the_source_instead(pod: Pod, serving: FakeAgent, source: Path) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(4, "it could never fit"))]
    done = pod.having(DSAGENT_ON_FAILURE="source").run()
    assert (done.code, pod.linked("images")) == (0, str(source)), done
    assert "images is not cached: it could never fit" in done.err
    assert f"images is read from its source, {source}" in done.out


def test_the_source_instead_of_an_agent_that_is_away(pod: Pod, source: Path) -> None:
    done = pod.having(DSAGENT_ON_FAILURE="source", DSAGENT_TIMEOUT="1s").run()
    assert (done.code, pod.linked("images")) == (0, str(source)), done
    assert "there is no such socket" in done.err


def test_the_source_instead_of_what_is_not_in_place(pod: Pod, serving: FakeAgent, source: Path, tree: Path) -> None:
    (tree / "file").unlink()
    done = pod.having(DSAGENT_ON_FAILURE="source").run()
    assert (done.code, pod.linked("images")) == (0, str(source)), done
    assert "images is not cached: images is not where the agent says" in done.err


def test_what_is_ready_is_used_where_another_fails(pod: Pod, serving: FakeAgent, source: Path, tree: Path) -> None:
    failed = dataset("coco", "failed", error=problem(3, "gone"))
    serving.make = lambda _: [failed, dataset("images", "running")]
    both = pod.having(DSAGENT_DATASETS=f"coco=file://{source},images={source}", DSAGENT_ON_FAILURE="source")
    client = both.start()
    client.until("coco: failed: gone")
    serving.show(UID, failed, ready(tree))
    done = client.end()
    assert (done.code, pod.linked("coco"), pod.linked("images")) == (0, str(source), str(tree)), done


def test_one_failure_is_enough_where_the_source_is_no_help(pod: Pod, serving: FakeAgent, source: Path) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(3, "gone")), dataset("coco", "running")]
    done = pod.having(DSAGENT_DATASETS=f"images={source},coco={source}").run()
    assert (done.code, done.err) == (3, "dsagent-init: images: gone\n")


def test_a_url_cannot_be_linked(pod: Pod, serving: FakeAgent, scratch: Path, source: Path) -> None:
    serving.make = lambda _: [dataset("images", "failed", error=problem(5, "bad bytes"))]
    url = pod.having(DSAGENT_ON_FAILURE="source", DSAGENT_DATASETS="images=s3://bucket/images")
    done = url.run()
    assert done.code == 5, done
    assert "images: bad bytes; images cannot be read from its source: that is a URL and no folder; mount it" in done.err
    mounted = url.having(DSAGENT_SOURCE_DIR=str(source.parent)).run()
    assert (mounted.code, pod.linked("images")) == (0, str(source)), mounted


def test_bad_settings_are_not_passed_over(pod: Pod, serving: FakeAgent) -> None:
    serving.answers = [answer(422, problem(2, "datasets.0.options.chek: no such field"))]
    assert pod.having(DSAGENT_ON_FAILURE="source").run().code == 2
    assert pod.having(DSAGENT_ON_FAILURE="source", DSAGENT_TIMEOUT="soon").run().code == 2


def test_local_mode_asks_nobody(pod: Pod, source: Path) -> None:
    local = pod.having(DSAGENT_MODE="local", POD_UID="", POD_NAME="", POD_NAMESPACE="")
    started = local.run("start")
    assert (started.code, pod.datasets.exists()) == (0, False), started
    for command in ("run", "wait"):
        done = local.run(command)
        assert (done.code, pod.linked("images"), done.err) == (0, str(source), ""), done


def test_local_mode_does_not_take_a_missing_mount_for_data(pod: Pod, source: Path) -> None:
    local = pod.having(DSAGENT_MODE="local")
    (source / "file").unlink()
    empty = local.run()
    assert (empty.code, f"{source} is empty; mount it" in empty.err) == (3, True), empty
    source.rmdir()
    missing = local.run()
    assert (missing.code, f"there is no folder {source}; mount it" in missing.err) == (3, True), missing
    url = local.having(DSAGENT_DATASETS="images=s3://bucket/images").run()
    assert (url.code, "that is a URL and no folder" in url.err) == (3, True), url
    assert not pod.datasets.exists()


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
