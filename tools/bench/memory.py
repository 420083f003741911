"""How much memory the product's processes take together, with as many files as ImageNet has."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from tools.bench import trees
from tools.bench.disk import loop_ext4, remove
from tools.bench.setting import GIB, Dsctl, Setting
from tools.bench.timing import Result

SAMPLE_SECONDS = 0.05
BAR_MB = 500
# A bundle of 4 GiB comes about only if the number of files does not end it sooner.
BUNDLES = {"64MiB": "50000", "4GiB": "2000000"}


def memory(setting: Setting) -> Result:
    """Peaks of pack, cache, verify, and of an update's pack and cache; MB are 1,000,000 bytes."""
    result = Result("memory", f"Peak memory with {setting.imagenet.files:,} files")
    # Eleven gigabytes of blocks: on disk, not in memory.
    with loop_ext4(setting.build, 24 * GIB, ["-N", "4500000"]) as disk:
        tree = trees.make_tiny(disk / "source", setting.imagenet)
        for round_number, (bundle, files) in enumerate(BUNDLES.items()):
            root, store = disk / f"root-{bundle}", disk / f"store-{bundle}"
            ours = Dsctl(root)
            packing = ours.command(
                *("pack", tree.root, store, "--name", "bench"),
                *("--bundle-bytes", bundle, "--files-per-bundle", files),
            )
            steps = {
                "pack": packing,
                "cache": ours.command("cache", store),
                "verify": ours.command("verify", "bench"),
                "pack of an update": packing,
                "update": ours.command("cache", store),
            }
            for step, words in steps.items():
                if step == "pack of an update":
                    trees.change(tree, 0.01, round_number)
                peak, seconds = _watch(words)
                setting.say(f"  {step}, {bundle}: {peak / 1e6:.0f} MB, {seconds:.1f} s")
                result.note(f"{step}, bundles of {bundle}", peak / 1e6, "MB", BAR_MB)
                result.seconds[f"{step}, {bundle}"] = [seconds]
            remove(root)
            remove(store)
    return result


def _watch(words: list[str]) -> tuple[int, float]:
    """Run a command in a session of its own; its processes' peak of summed PSS in bytes, and seconds."""
    peak = 0
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        leader = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        while leader.poll() is None:
            peak = max(peak, sum(_pss(pid) for pid in _session(leader.pid)))
            time.sleep(SAMPLE_SECONDS)
        if leader.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(words)}\nexit {leader.returncode}: {errors.read().decode()[-2000:]}")
    return peak, time.perf_counter() - begun


def _session(leader: int) -> list[int]:
    members = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == leader:
                    members.append(int(name))
            except ProcessLookupError:
                continue
    return members


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except (FileNotFoundError, ProcessLookupError):
        pass  # It ended between the listing and this look.
    return 0
