"""What an asker may name as a source, and what it is refused of what is here already."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsagent.contract import ExitCode
from tests import servers
from tests.support import trees
from tests.support.agents import agent
from tests.support.command import HANG_SECONDS, Dsctl
from tests.support.people import USER, ordinary_user
from tests.support.tokens import ONE, TWO, write_tokens

MAKE_BUCKET = """
import boto3, pathlib, sys
client = boto3.client("s3")
client.create_bucket(Bucket=sys.argv[1])
folder = pathlib.Path(sys.argv[2])
for path in folder.rglob("*"):
    if path.is_file():
        client.put_object(Bucket=sys.argv[1], Key=f"imgs/{path.relative_to(folder)}", Body=path.read_bytes())
"""


@pytest.mark.needs("root", "setpriv", "mount")
@pytest.mark.parametrize("packed", [True, False])
def test_what_is_here_is_refused_while_the_agent_may_not_read_where_it_came_from(scratch: Path, packed: bool) -> None:
    source = scratch / "data" / "imgs"
    trees.make_files(source, 20)
    place = source
    if packed:
        place = scratch / "data" / "store"
        Dsctl(scratch / "packer").ok("pack", source, place)
    (scratch / "root").mkdir()
    os.chown(scratch / "root", USER, USER)
    os.chmod(scratch, 0o777)
    tokens = write_tokens(scratch / "tokens.yaml", ONE, TWO)
    flags = ("--tokens", str(tokens), "--sources", str(scratch / "data"))
    with ordinary_user() as prefix, agent(scratch / "root", *flags, prefix=prefix) as running:
        first = ONE.put(running, {"source": str(place), "name": "imgs"})
        assert first["state"] == "ready", first
        pinned: dict[str, Any] = {"source": str(place), "name": "imgs", "version": first["version"]}
        never: dict[str, Any] = {"source": str(place), "name": "imgs", "options": {"check": "never"}}
        for asked in (pinned, never):
            assert TWO.put(running, asked)["outcome"] == "hit"
            TWO.end(running)
        os.chmod(place, 0o700)
        for asked in (pinned, never, {**pinned, **never}):
            options = {**asked.get("options", {}), "skip_special": True}  # not what was asked for just before
            refused = TWO.put(running, {**asked, "options": options})
            assert (refused["state"], refused["path"]) == ("failed", None), asked
            assert refused["error"]["exit_code"] in (ExitCode.SOURCE, ExitCode.PERMISSION), refused
            TWO.end(running)


def test_what_is_here_is_refused_to_credentials_that_cannot_read_the_bucket(scratch: Path) -> None:
    environment = servers.versitygw()
    endpoint = {"endpoint_url": environment["AWS_ENDPOINT_URL"], "region": "us-east-1"}
    keys = {
        "access_key_id": environment["AWS_ACCESS_KEY_ID"],
        "secret_access_key": environment["AWS_SECRET_ACCESS_KEY"],
    }
    trees.make_files(scratch / "imgs", 10)
    subprocess.run(
        [sys.executable, "-c", MAKE_BUCKET, "access", str(scratch / "imgs")],
        check=True,
        env={**os.environ, **environment},
        timeout=HANG_SECONDS,
    )
    tokens = write_tokens(scratch / "tokens.yaml", ONE, TWO)
    with agent(scratch / "root", "--tokens", str(tokens)) as running:
        asked = {"source": "s3://access/imgs", "options": {"storage": endpoint}}
        first = ONE.put(running, {**asked, "credentials": keys})
        assert first["state"] == "ready", first
        never = {**asked, "options": {"storage": endpoint, "check": "never"}}
        for wanted in ({**asked, "version": first["version"]}, never, asked):
            good = TWO.put(running, {**wanted, "credentials": keys})
            assert good["state"] == "ready", good
            TWO.end(running)
            for bad in ({**keys, "secret_access_key": "x" * 32}, {**keys, "access_key_id": "somebody"}):
                refused = TWO.put(running, {**wanted, "credentials": bad})
                assert (refused["state"], refused["path"]) == ("failed", None), wanted
                # The server says 404 of a key that it does not know.
                assert refused["error"]["exit_code"] in (ExitCode.SOURCE, ExitCode.PERMISSION), refused
                TWO.end(running)


def test_symlinks_do_not_lead_a_pod_out_of_the_allowed_folders(scratch: Path) -> None:
    trees.make_files(scratch / "private" / "imgs", 300)  # so many that workers read them
    trees.make_files(scratch / "data" / "imgs", 300)
    os.symlink("../private/imgs", scratch / "data" / "out")
    os.symlink(scratch / "private", scratch / "data" / "absolute")
    os.symlink("imgs", scratch / "data" / "within")
    os.symlink("../private", scratch / "data" / "stores")
    tokens = write_tokens(scratch / "tokens.yaml", ONE)
    with agent(scratch / "root", "--tokens", str(tokens), "--sources", f"{scratch / 'data'},s3://data") as running:
        for path in ("data/../private/imgs", "private/imgs", "database", "data/imgs/../../private/imgs"):
            reply = ONE.ask(running, "PUT", f"/v1/tasks/{ONE.uid}", ONE.task({"source": f"{scratch}/{path}"}))
            assert (reply.status, reply.json["exit_code"]) == (403, ExitCode.PERMISSION), path
        for path in ("out", "absolute/imgs"):
            refused = ONE.put(running, {"source": f"{scratch}/data/{path}"})
            assert (refused["state"], refused["error"]["exit_code"]) == ("failed", ExitCode.PERMISSION), refused
            ONE.end(running)
        asked = {"source": f"{scratch}/data/within", "options": {"pack_to": f"{scratch}/data/stores/new"}}
        refused = ONE.put(running, asked)
        assert (refused["state"], refused["error"]["exit_code"]) == ("failed", ExitCode.PERMISSION), refused
        ONE.end(running)
        asked["options"]["pack_to"] = f"{scratch}/private/new"  # type: ignore[index]
        assert ONE.ask(running, "PUT", f"/v1/tasks/{ONE.uid}", ONE.task(asked)).status == 403
        assert not (scratch / "private" / "new").exists()
        asked["options"]["pack_to"] = f"{scratch}/data/new"  # type: ignore[index]
        ready = ONE.put(running, asked)
        assert ready["state"] == "ready", ready
        assert (scratch / "data" / "new" / "dsagent-store.json").exists()
        (info,) = ONE.ask(running, "GET", "/v1/datasets").json
        assert info["source"] == f"{scratch}/data/within", "as it was asked for"
        for url in ("s3://database/x", "s3://data/../x", "s3://data/%2e%2e/x", "s3://other"):
            reply = ONE.ask(running, "PUT", "/v1/tasks/" + ONE.uid, ONE.task({"source": url}))
            assert reply.status == 403, url


def test_a_restart_keeps_a_pack_within_the_allowed_folders(scratch: Path) -> None:
    """The file of a task remembers beneath what each place has to lie."""
    trees.make_files(scratch / "data" / "imgs", 10)
    os.symlink("../private", scratch / "data" / "stores")
    (scratch / "private").mkdir()
    tokens = write_tokens(scratch / "tokens.yaml", ONE)
    options = {"pack_to": f"{scratch}/data/stores/new"}
    with agent(scratch / "root", "--tokens", str(tokens), "--sources", str(scratch / "data")) as running:
        assert ONE.put(running, {"source": f"{scratch}/data/imgs", "options": options})["state"] == "failed"
        running.kill()
        running.start()
        info = ONE.ask(running, "GET", f"/v1/tasks/{ONE.uid}").json
        while info["state"] in ("pending", "running"):
            info = ONE.ask(running, "GET", f"/v1/tasks/{ONE.uid}?wait=10").json
        assert info["datasets"][0]["error"]["exit_code"] == ExitCode.PERMISSION
        assert os.listdir(scratch / "private") == []
