"""Two NUMA nodes on a machine that has one: another /sys/devices/system/node for all that runs in a room."""

import os
from pathlib import Path

from tools.cluster.rooms import Room

_SYSFS = Path("/sys/devices/system/node")


def show_two_nodes(room: Room) -> None:
    """Give each of two made nodes half of the CPUs and the whole machine's memory."""
    made = room.directory / "numa"
    cpus = sorted(os.sched_getaffinity(0))
    halves = [cpus[: len(cpus) // 2], cpus[len(cpus) // 2 :]]
    for number, half in enumerate(halves):
        folder = made / f"node{number}"
        (folder / "hugepages").mkdir(parents=True, exist_ok=True)
        (folder / "cpulist").write_text(",".join(map(str, half)) + "\n")
        (folder / "distance").write_text("10 21\n" if number == 0 else "21 10\n")
        (folder / "meminfo").write_text((_SYSFS / "node0/meminfo").read_text().replace("Node 0", f"Node {number}"))
        for cpu in half:
            link = folder / f"cpu{cpu}"
            link.unlink(missing_ok=True)
            link.symlink_to(f"/sys/devices/system/cpu/cpu{cpu}")
    for file in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        (made / file).write_text("0-1\n")
    if room.run("test", "-e", f"{_SYSFS}/node1/meminfo", check=False).returncode:
        room.run("mount", "--bind", str(made), str(_SYSFS))
