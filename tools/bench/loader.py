"""What a training loop gains: images a second of a loader with four workers that decodes real PNG files."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tools import servers
from tools.bench.disk import loop_ext4, remove, settle
from tools.bench.latency import BUCKET, MOUNT_MS, S3_MS, Slow, slow_s3, slow_sshd, tool
from tools.bench.setting import GIB, MEMORY, Dsctl, Setting, command
from tools.bench.timing import Contender, Result, median, race

PACKAGE = "oxygen-icon-theme"
WORKERS = 4
MOUNT, S3, CACHED = f"mount, {MOUNT_MS} ms", f"S3, {S3_MS} ms", "cached path"
MOUNT_FIRST, S3_FIRST = (
    "dsctl cache from the mount, then cached path",
    "dsctl cache from S3, then cached path",
)


def loader(setting: Setting) -> Result:
    """Epochs from a mount, from S3, and from the cached path; also with the caching itself in front."""
    result = Result("loader", f"A loader with {WORKERS} workers that decodes PNG files")
    with (
        loop_ext4(MEMORY, 2 * GIB) as disk,
        slow_sshd(disk / "remote") as slow,
        slow_s3(disk / "s3") as (near, far),
        ExitStack() as mounted,
    ):
        epochs = _Epochs(disk, slow, far)
        epochs.set_up(near)
        mount = disk / "mount"

        def clean() -> None:
            mounted.close()
            remove(epochs.cold.root)
            settle(disk)

        runs = {
            MOUNT: lambda: epochs.run(MOUNT, "file", mount / "images"),
            S3: lambda: epochs.run(S3, "s3", f"{BUCKET}/images"),
            CACHED: lambda: epochs.run(CACHED, "file", epochs.cached),
            MOUNT_FIRST: lambda: epochs.cache_first(MOUNT_FIRST, mount / "store"),
            S3_FIRST: lambda: epochs.cache_first(S3_FIRST, f"s3://{BUCKET}/store"),
        }
        contenders = [
            Contender(name, run, prepare=lambda: mounted.enter_context(slow.mounted(mount)), clean=clean)
            for name, run in runs.items()
        ]
        result.seconds = race(contenders, setting.rounds, setting.say)
    result.note("images", epochs.images, "")
    for name, seconds in epochs.seconds.items():
        result.note(f"{name}: images a second", epochs.images / median(seconds), "/s")
    for name, seconds in epochs.first_batch.items():
        result.note(f"{name}: until the first batch", median(seconds), "s")
    return result


@dataclass
class _Epochs:
    """The images in their places, and what each epoch took from the moment the job wants its data."""

    disk: Path
    slow: Slow
    far: Mapping[str, str]
    images: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    first_batch: dict[str, list[float]] = field(default_factory=dict)

    @property
    def cold(self) -> Dsctl:
        """The product with a root that is emptied after each run."""
        return Dsctl(self.disk / "cold", self.far)

    def set_up(self, near: Mapping[str, str]) -> None:
        """Put the images and their stores behind both latencies, and cache them once."""
        source, store = self.slow.remote / "images", self.slow.remote / "store"
        self.images = _unpack_images(source)
        warm = Dsctl(self.disk / "warm", near)
        warm.run("pack", source, store, "--name", "icons")
        warm.run("pack", source, f"s3://{BUCKET}/store", "--name", "icons")
        command(tool("s5cmd"), "cp", f"{source}/", f"s3://{BUCKET}/images/", environment=near)
        self.cached = Path(warm.run("cache", store)["path"])

    def cache_first(self, name: str, store: str | Path) -> None:
        """Cache, then run the epoch on what was cached."""
        document = self.cold.run("cache", store)
        self.run(name, "file", document["path"], waited=document["seconds"])

    def run(self, name: str, kind: str, location: str | Path, waited: float = 0) -> None:
        """Run an epoch in a process of its own."""
        script = Path(__file__).with_name("loader_epoch.py")
        words = [str(word) for word in (tool("python"), script, kind, location, WORKERS)]
        environment = {**os.environ, **self.far}
        done = subprocess.run(words, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name}: exit {done.returncode}: {done.stderr[-2000:]}")
        document = json.loads(done.stdout)
        if document["images"] != self.images:
            raise RuntimeError(f"{name}: {document['images']} of {self.images} images")
        self.seconds.setdefault(name, []).append(waited + document["seconds"])
        self.first_batch.setdefault(name, []).append(waited + document["first_batch"])


def _unpack_images(target: Path) -> int:
    """Put a Debian icon theme's PNG files into `target`, links as files; how many they are."""
    if shutil.which("apt-get") is None:
        raise servers.ToolMissingError(f"the images come from the Debian package {PACKAGE}")
    with tempfile.TemporaryDirectory() as at:
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", PACKAGE], cwd=at, check=True)
        (package,) = Path(at).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, at], check=True)
        theme = Path(at) / "usr/share/icons/oxygen"
        shutil.copytree(theme, target, ignore=shutil.ignore_patterns("*.theme", "*.cache"), symlinks=False)
    return sum(name.endswith(".png") for _, _, names in os.walk(target) for name in names)
