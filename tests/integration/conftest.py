"""Where these tests work."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import trees

_MEMORY = Path("/dev/shm")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that every user may enter, in memory where that can be written; trees of any depth are removed."""
    memory = str(_MEMORY) if os.access(_MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="dsagent-", dir=memory))
    folder.chmod(0o755)
    yield folder
    trees.remove(folder)
