"""What these tests share: an agent that a module's tests ask, and two trees that look alike."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import trees
from tests.support.agents import AgentProcess, agent
from tests.support.tokens import ADMIN, ONE, OTHER, TWO, write_tokens

BODY = {"owner": {"name": "me"}, "datasets": [{"source": "/nowhere"}]}
# All that is not health: method, path and a body that would be valid.
ROUTES: Sequence[tuple[str, str, Any]] = (
    ("GET", "/v1/tasks", None),
    ("PUT", "/v1/tasks/one", BODY),
    ("GET", "/v1/tasks/one", None),
    ("DELETE", "/v1/tasks/one", None),
    ("GET", "/v1/events", None),
    ("GET", "/v1/datasets", None),
    ("POST", "/v1/plan", {"dataset": {"source": "/nowhere"}}),
    ("POST", "/v1/verify", {"reference": "imgs"}),
    ("POST", "/v1/diff", {"a": {"source": "/a"}, "b": {"source": "/b"}}),
    ("POST", "/v1/evict", {"need": 1}),
    ("GET", "/v1/leases", None),
    ("POST", "/v1/leases", {"reference": "imgs", "owner": "me"}),
    ("PUT", "/v1/leases/imgs", {}),
    ("PUT", "/v1/leases/0123456789abcdef/held", None),
    ("DELETE", "/v1/leases/imgs", None),
    ("GET", "/v1/disk", None),
    ("GET", "/v1/doctor", None),
    ("POST", "/v1/doctor/rebuild", None),
    ("GET", "/v1/limits", None),
    ("PATCH", "/v1/limits", {"bandwidth": 1}),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dsagent-", dir="/dev/shm"))
    folder.chmod(0o755)
    yield folder
    trees.remove(folder)


@pytest.fixture(scope="module")
def sources(place: Path) -> Path:
    """Two trees of one name whose listings are equal, whose contents are not."""
    for team, content in (("team", b"ours"), ("other", b"hers")):
        folder = place / "sources" / team / "imgs"
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"{number}").write_bytes(content)
            os.utime(folder / f"{number}", ns=(0, 10**18 + number))
    return place / "sources"


@pytest.fixture(scope="module")
def running(place: Path, sources: Path) -> Iterator[AgentProcess]:
    tokens = write_tokens(place / "tokens.yaml", ADMIN, ONE, TWO, OTHER)
    with agent(place / "root", "--tokens", str(tokens), "--sources", str(sources)) as started:
        yield started


@pytest.fixture
def imgs(running: AgentProcess, sources: Path) -> Iterator[dict[str, Any]]:
    """A dataset of the first pod's task."""
    yield ONE.put(running, {"source": str(sources / "team" / "imgs")})
    for asker in (ONE, TWO, OTHER):
        asker.end(running)
