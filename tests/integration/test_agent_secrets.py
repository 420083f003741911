"""A canary: credentials are nowhere but in the request that brings them."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests import servers
from tests.support.agents import AgentProcess, agent
from tests.support.command import HANG_SECONDS
from tests.support.processes import MARK, marked
from tests.support.tokens import ADMIN, ONE, TWO, write_tokens

CANARY = "C4NARYc4narySESAME"
FILL = """
import boto3, os, sys
client = boto3.client("s3")
client.create_bucket(Bucket=sys.argv[1])
for number in range(300):
    client.put_object(Bucket=sys.argv[1], Key=f"imgs/{number}", Body=os.urandom(20_000))
"""


def processes(mark: str) -> Iterator[str]:
    """What the processes with a mark show of themselves."""
    for pid in marked(mark):
        for file in ("cmdline", "environ"):
            try:
                yield Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
            except OSError:
                continue


def shown(running: AgentProcess, root: Path) -> Iterator[tuple[str, str]]:
    """All that can be read of an agent, but its memory."""
    for path in ("/v1/tasks", f"/v1/tasks/{ONE.uid}", f"/v1/tasks/{TWO.uid}", "/v1/datasets", "/v1/leases", "/metrics"):
        yield path, ADMIN.ask(running, "GET", path).body.decode()
    for path in ("/v1/doctor", "/v1/disk", "/v1/limits", "/openapi.json"):
        yield path, ADMIN.ask(running, "GET", path).body.decode()
    yield "the log", running.log.read_text()
    for file in root.rglob("*"):
        yield "a name", file.name
        if file.is_file() and "data" not in file.parts:
            yield str(file), file.read_bytes().decode(errors="replace")


def test_credentials_are_nowhere_to_be_seen(scratch: Path) -> None:
    """Real keys that end in a dataset, and keys that are refused: the canary is all of them and part of each."""
    environment = servers.versitygw()
    subprocess.run(
        [sys.executable, "-c", FILL, "canary"], check=True, env={**os.environ, **environment}, timeout=HANG_SECONDS
    )
    good = {
        "access_key_id": environment["AWS_ACCESS_KEY_ID"],
        "secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
    }
    secrets = [CANARY, *good.values()]
    bad = {"access_key_id": f"{CANARY}1", "secret_access_key": f"{CANARY}2", "session_token": f"{CANARY}3"}
    endpoint = {"storage": {"endpoint_url": environment["AWS_ENDPOINT_URL"], "region": "us-east-1"}}
    tokens = write_tokens(scratch / "tokens.yaml", ADMIN, ONE, TWO)
    secrets += [ADMIN.token, ONE.token, TWO.token]
    mark = {MARK: f"canary-{os.getpid()}"}
    flags = ("--tokens", str(tokens), "--bandwidth", "4M")
    with agent(scratch / "root", *flags, environment=mark) as running:
        seen: set[str] = set()
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                seen.update(processes(mark[MARK]))

        looking = threading.Thread(target=look)
        looking.start()
        events: list[bytes] = []
        listening = threading.Thread(
            target=lambda: events.append(ADMIN.ask(running, "GET", "/v1/events?task=" + ONE.uid).body)
        )
        listening.start()
        answers: list[str] = []
        asked = {"source": "s3://canary/imgs", "options": endpoint}
        answers.append(str(ONE.put(running, {**asked, "credentials": good})))
        for task in ({**asked, "credentials": bad}, {**asked, "credentials": {**good, "secret_access_key": CANARY}}):
            failed = TWO.put(running, task)
            assert failed["state"] == "failed", failed
            answers.append(str(failed))
            TWO.end(running)
        for asker, wrong in ((ONE, "s3://x/y"), (ADMIN, "nonsense://x/y"), (ADMIN, "sftp://127.0.0.1:1/x")):
            body = {"dataset": {"source": wrong, "credentials": bad, "options": endpoint}}
            answers.append(asker.ask(running, "POST", "/v1/plan", body).body.decode())
        place = {"source": "s3://canary/imgs", "storage": endpoint["storage"], "credentials": bad}
        answers.append(ONE.ask(running, "POST", "/v1/diff", {"a": place, "b": place}).body.decode())
        verify = {"reference": "imgs", "repair": True, "credentials": good, "storage": endpoint["storage"]}
        answers.append(ONE.ask(running, "POST", "/v1/verify", verify).body.decode())
        for malformed in (
            {"dataset": {"source": "s3://a/b", "credentials": CANARY}},
            {"dataset": {"source": "s3://a/b", "credentials": {"access_key_id": [CANARY]}}},
            {"dataset": {"source": "s3://a/b", "credentials": {"secret": CANARY, "access_key_id": 1}}},
            {"dataset": {"source": f"https://{CANARY}@host/x"}},
            {"dataset": {"source": f"https://me:{CANARY}@host/x"}},
            {"dataset": {"source": f"s3://bucket/x?X-Amz-Signature={CANARY}"}},
            {"dataset": {"source": "s3://a/b", "options": {"storage": {"secret_access_key": CANARY}}}},
            {"dataset": {"source": "s3://a/b", "options": {"storage": {"proxy_url": f"http://me:{CANARY}@proxy"}}}},
        ):
            reply = ONE.ask(running, "POST", "/v1/plan", malformed)
            assert reply.status in (400, 422), malformed
            answers.append(reply.body.decode())
        done.set()
        looking.join()
        assert any("dsagent.entrypoints.worker" in text for text in seen), "workers were looked at"
        found = [*shown(running, scratch / "root"), *(("an answer", text) for text in answers)]
        found += [("a process", text) for text in seen]
        running.stop()
        listening.join()
        assert events, "the stream was read to its end"
        assert b"event: task" in events[0]
        found += [("an event", events[0].decode()), ("the log at its end", running.log.read_text())]
    for secret in secrets:
        places = sorted({place for place, text in found if secret in text})
        assert not places, f"{secret} is in {places}"


def test_what_is_sent_as_a_token_is_not_repeated(scratch: Path) -> None:
    with agent(scratch / "root") as running:
        reply = running.ask("GET", "/v1/tasks", headers={"Authorization": f"Bearer {CANARY}"})
        assert reply.status == 401
        assert CANARY not in reply.body.decode()
        assert CANARY not in running.log.read_text()
