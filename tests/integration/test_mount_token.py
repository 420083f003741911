"""By what the agent tells whether unsynced bytes can still be trusted: on real filesystems and mounts."""

import subprocess
import sys
from pathlib import Path

import pytest

from dsagent.adapters.linux import mount_token
from tests.support.command import REPOSITORY
from tests.support.devices import ext4
from tests.support.namespaces import mounts

pytestmark = pytest.mark.needs("root", "loop", "mount", "ext4")

SIZE = 16 << 20
SAY = "import sys; from dsagent.adapters.linux import mount_token; print(mount_token(sys.argv[1]))"


def test_another_mount_of_the_same_filesystem_has_another_token(tmp_path: Path) -> None:
    with ext4(tmp_path / "image", tmp_path / "disk", SIZE) as disk:
        first = mount_token(str(disk))
        loop = subprocess.run(
            ["findmnt", "-no", "SOURCE", str(disk)], check=True, capture_output=True, text=True
        ).stdout.strip()
        again = tmp_path / "again"
        again.mkdir()
        subprocess.run(["mount", loop, str(again)], check=True)  # the same one, at a second place
        try:
            assert mount_token(str(again)) == first
        finally:
            subprocess.run(["umount", str(again)], check=True)
        subprocess.run(["umount", str(disk)], check=True)
        subprocess.run(["mount", "-o", "loop", str(tmp_path / "image"), str(disk)], check=True)
        assert mount_token(str(disk)) != first


def test_a_container_that_is_started_anew_has_the_same_token(tmp_path: Path) -> None:
    with ext4(tmp_path / "image", tmp_path / "disk", SIZE) as disk:
        here = mount_token(str(disk))
        for _ in range(2):
            with mounts('mkdir -p "$1" && mount --bind "$2" "$1"', str(tmp_path / "inside"), str(disk)) as inside:
                command = [*inside, sys.executable, "-c", SAY, str(tmp_path / "inside")]
                done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
                assert done.stdout.strip() == here
