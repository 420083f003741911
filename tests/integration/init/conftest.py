"""What these tests share: an agent that says exactly what a test wants, and a pod that asks it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.agent import Document, FakeAgent, dataset
from tests.support.init import Pod

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
