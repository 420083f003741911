"""What an import brings with it, seen from an interpreter that has the standard library and nothing else."""

import subprocess
import sys

import pytest

from tests.packaging.conftest import REPOSITORY

LOADED = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
import {{module}}
print(*(name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names))
"""


@pytest.mark.parametrize(
    ("module", "loaded"),
    [
        ("dsagent", {"dsagent"}),
        ("dsagent.contract", {"dsagent", "dsagent.contract"}),
        ("gpu_topology.links", {"gpu_topology", "gpu_topology.api", "gpu_topology.links"}),
    ],
)
def test_import_needs_the_standard_library_only(module: str, loaded: set[str]) -> None:
    run = [sys.executable, "-I", "-S", "-c", LOADED.format(module=module)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"__main__"} == loaded
