import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from dsagent.agent.noop import noop


def test_it_ends_with_status_0_in_a_root_that_has_nothing_else(tmp_path: Path) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("not to be had on this machine: a machine with x86_64 or aarch64")
    program = tmp_path / "noop"
    program.write_bytes(noop(platform.machine()))
    program.chmod(0o555)
    assert subprocess.run([program], check=False, env={}).returncode == os.EX_OK


@pytest.mark.needs("qemu-aarch64")
def test_it_ends_with_status_0_on_arm64(tmp_path: Path) -> None:
    program = tmp_path / "noop"
    program.write_bytes(noop("aarch64"))
    program.chmod(0o555)
    assert subprocess.run(["qemu-aarch64-static", program], check=False, env=os.environ).returncode == os.EX_OK


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_its_entry_is_inside_the_one_segment(machine: str, number: int) -> None:
    made = noop(machine)
    assert struct.unpack_from("<H", made, 18) == (number,)
    (entry,) = struct.unpack_from("<Q", made, 24)
    address, _, stored, loaded, page = struct.unpack_from("<5Q", made, 64 + 16)
    assert stored == loaded == len(made)
    assert address <= entry < address + len(made)
    assert address % page == 0
