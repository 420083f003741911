"""What a worker loads before its first job: every caching waits for it, on every CPU."""

import subprocess
import sys

SLOW = ("dataclasses", "inspect", "logging", "orjson", "sqlite3", "uuid", "dsagent.core.problem", "dsagent.service")
JOBS = "import dsagent.entrypoints.worker, dsagent.engine.unpack, dsagent.engine.copy, dsagent.engine.link"


def test_a_worker_loads_nothing_slow() -> None:
    tell = f"{JOBS}, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", tell], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "dsagent.engine.unpack" in loaded
    assert [name for name in SLOW if name in loaded] == []
