"""Asking an agent that is away, refuses, or is none."""

import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsagent.adapters.agent_address import Access, find_agent, parse_address
from dsagent.adapters.agent_http import AgentHttp
from dsagent.core.errors import AgentUnreachable, NotPermitted, UsageError
from tests.fakes.agent import Answer, FakeAgent, answer, problem


@pytest.fixture
def fake(tmp_path: Path) -> FakeAgent:
    return FakeAgent(tmp_path / "socket")


@pytest.fixture
def serving(fake: FakeAgent) -> Iterator[FakeAgent]:
    with fake.serving():
        yield fake


def http(fake: FakeAgent, patience: float = 30.0) -> AgentHttp:
    return AgentHttp(Access(parse_address(f"unix://{fake.socket}")), patience)


def test_it_is_asked_again_while_it_is_not_ready(serving: FakeAgent) -> None:
    unavailable = answer(503, problem(1, "not now"), Retry_After="1")
    for method in ("GET", "POST"):
        serving.asked.clear()
        serving.answers += [unavailable, unavailable, answer(200, {"a": 1})]
        assert http(serving).ask(method, "/v1/x", {"b": 2} if method == "POST" else None) == {"a": 1}
        assert serving.count(method) == 3


def test_patience_ends(serving: FakeAgent) -> None:
    serving.answers += [answer(503, problem(1, "not now"))] * 100
    with pytest.raises(AgentUnreachable):
        http(serving, patience=0.1).ask("GET", "/v1/x")
    assert serving.count("GET") > 1


def test_nobody_is_given_up_at_once_and_one_that_was_there_is_waited_for(fake: FakeAgent) -> None:
    asking = http(fake)
    with pytest.raises(AgentUnreachable, match="dsagent serve"):
        asking.ask("GET", "/v1/x")
    with fake.serving():
        fake.answers.append(answer(200, []))
        assert asking.ask("GET", "/v1/x") == []
    fake.answers.append(answer(200, ["again"]))
    back = threading.Thread(target=_serve_later, args=(fake,))
    back.start()
    assert asking.ask("GET", "/v1/x") == ["again"]
    back.join()


def _serve_later(fake: FakeAgent) -> None:
    time.sleep(0.05)  # long enough that the first attempt finds nobody
    with fake.serving(), fake.changed:
        assert fake.changed.wait_for(lambda: fake.count("GET") == 2, 30)


def test_a_post_whose_answer_was_lost_is_not_sent_twice(serving: FakeAgent) -> None:
    serving.answers.append(Answer(200, None))
    with pytest.raises(AgentUnreachable, match="in the middle"):
        http(serving).ask("POST", "/v1/evict", {})
    assert serving.count("POST") == 1
    serving.answers += [Answer(200, None), answer(200, {})]
    assert http(serving).ask("PUT", "/v1/tasks/x", {}) == {}


def test_problems_are_errors_again(serving: FakeAgent) -> None:
    document = problem(11, "cannot ask") | {"type": "https://dsagent.io/problems/unauthenticated", "hint": "a token"}
    serving.answers.append(answer(401, document))
    with pytest.raises(NotPermitted, match="a token"):
        http(serving).ask("GET", "/v1/x")


@pytest.mark.parametrize(
    "odd", [Answer(200, b"<html>"), Answer(404, b"<html>"), answer(404, {}), answer(500, ["x"]), answer(502, {"a": 1})]
)
def test_what_is_no_agent(serving: FakeAgent, odd: Answer) -> None:
    serving.answers.append(odd)
    with pytest.raises(AgentUnreachable, match="address is an agent's"):
        http(serving).ask("GET", "/v1/x")


def test_events_end_with_their_stream(serving: FakeAgent) -> None:
    events = b': hello\n\nevent: progress\ndata: {"a": 1}\n\nid: 7\nevent: result\ndata: [2]\n\n'
    serving.answers.append(Answer(200, events))
    assert list(http(serving).stream("POST", "/v1/verify", {})) == [("progress", {"a": 1}), ("result", [2])]


def test_a_root_that_nobody_holds_has_no_agent(tmp_path: Path) -> None:
    assert find_agent(tmp_path) is None
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "agent").write_text('{"agent": "unix:///gone"}')
    assert find_agent(tmp_path) is None


def test_an_agent_that_has_just_taken_its_lock_is_given_the_time_to_say_where_it_is(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "agent"
    lock.parent.mkdir()
    with lock.open("wb", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = threading.Timer(0.05, file.write, [b'{"agent": "unix:///run/a.sock"}'])
        writer.start()
        found = find_agent(tmp_path)
        writer.join()
        assert found is not None
        assert (found.socket, found.lock) == ("/run/a.sock", lock)
        file.write(b"more")
        with pytest.raises(UsageError, match="--agent"):
            find_agent(tmp_path)


@pytest.mark.parametrize("text", ["unix:///" + "x" * 107, "https://host:0", "https://:80", "tcp://host:80", "unix://x"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("unix:///run/a.sock").socket == "/run/a.sock"
    assert parse_address("https://node7:8443/")[1:4] == ("", "node7", 8443)
    assert parse_address("https://[::1]:8443").host == "::1"
