"""dsagent-init and an agent that is away, comes back, refuses, or is none."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.agent import Answer, FakeAgent, answer, dataset, problem
from tests.integration.init.conftest import CANARY, S3, ready
from tests.support.init import Pod
from tests.support.waiting import until


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
        until(lambda: agent.count("GET") > 0)
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
