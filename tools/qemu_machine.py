"""python -m tools.qemu_machine DIR: record what a real kernel says of a machine with NUMA nodes and PCIe switches.

Boots Debian's kernel in QEMU (no KVM needed, some seconds) on two NUMA nodes, each with a host bridge and a switch,
with network cards of the e1000e driver, and writes what discovery reads of its sysfs as `gpu-topology record` does.
QEMU has no NVIDIA GPU: displays stand in for GPUs, and their vendor and class are changed in the recording.
Needs: apt install qemu-system-x86 busybox-static cpio
"""

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from gpu_topology.discover import find_topology
from gpu_topology.recording import Inputs, start_recording, write_recording
from gpu_topology.sysfs import LINK, Recorded, Tree

BUILD = Path(__file__).parents[1] / "build" / "qemu"
SECONDS = 300  # ends a boot that hangs
INIT = """#!/bin/sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t sysfs none /sys
for module in /modules/*.ko; do insmod $module; done
ip link set lo up
i=0
while [ $i -lt 50 ] && [ "$(ls /sys/class/net | wc -l)" -lt 3 ]; do sleep 0.1; i=$((i+1)); done
echo BEGIN
cd /sys
find bus/pci/devices -type l | while read p; do echo "$p	@$(readlink $p)"; done
find devices/pci* \\( -name class -o -name vendor -o -name numa_node -o -name sriov_totalvfs \\) -type f \\
    | while read p; do echo "$p	$(cat $p 2>/dev/null)"; done
find devices/pci* -path '*/net/*' -name operstate | while read p; do echo "$p	$(cat $p)"; done
find devices/system/node/node? -maxdepth 1 \\( -name cpulist -o -name distance \\) \\
    | while read p; do echo "$p	$(cat $p)"; done
for p in devices/system/node/node?/meminfo; do echo "$p	$(grep MemTotal $p)"; done
find devices/system/cpu -name physical_package_id -o -name core_id | while read p; do echo "$p	$(cat $p)"; done
echo "devices/system/cpu/online	$(cat devices/system/cpu/online)"
echo END
poweroff -f
"""
NODES = 2
DISPLAYS = 2  # below each switch
DISPLAY_VENDOR = "0x1234"


def main() -> int:
    """Boot, read, write."""
    parser = argparse.ArgumentParser("python -m tools.qemu_machine", description="Record a machine of QEMU.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args().folder
    lacking = [name for name in ("qemu-system-x86_64", "busybox", "cpio", "dpkg-deb") if shutil.which(name) is None]
    if lacking:
        sys.stderr.write(f"{', '.join(lacking)}: apt install qemu-system-x86 busybox-static cpio\n")
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    kernel, modules, version = get_kernel()
    tree = parse(boot(kernel, make_initramfs(modules)))
    source = f"Linux {version} in QEMU, recorded by tools/qemu_machine.py; displays stand in for GPUs"
    inputs, recorder = start_recording(Inputs(Recorded(tree), {}, {}))
    topology, _ = find_topology(inputs)
    if len(topology.machine.gpus) < NODES * DISPLAYS:
        raise SystemExit("the machine did not show its devices")
    path = write_recording(folder, replace(inputs, subnets={}), recorder, source)
    print(f"{path}: {len(topology.machine.gpus)} GPUs, {len(topology.machine.nics)} network cards")
    return 0


def get_kernel() -> tuple[Path, list[Path], str]:
    """Debian's kernel image, the modules of e1000e, and its version; downloaded once."""
    if not list(BUILD.glob("root/boot/vmlinuz-*")):
        depends = subprocess.run(
            ["apt-cache", "depends", "linux-image-amd64"], check=True, capture_output=True, text=True
        ).stdout
        package = re.findall(r"Depends: (linux-image-\S+)", depends)[0]
        subprocess.run(["apt-get", "download", "-qq", package], check=True, cwd=BUILD)
        subprocess.run(["dpkg-deb", "-x", next(BUILD.glob("linux-image-*.deb")), BUILD / "root"], check=True)
    kernel = next(BUILD.glob("root/boot/vmlinuz-*"))
    modules = list(BUILD.glob("root/**/e1000e.ko"))
    return kernel, modules, kernel.name.removeprefix("vmlinuz-")


def make_initramfs(modules: list[Path]) -> Path:
    """An archive with busybox, the modules and the script above."""
    root = BUILD / "initramfs"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "sys", "modules", "dev"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox
    shutil.copy(busybox, root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")
    for module in modules:
        shutil.copy(module, root / "modules")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    archive = BUILD / "initramfs.cpio"
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with archive.open("wb") as file:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], check=True, cwd=root, input=names.encode(), stdout=file)
    return archive


def boot(kernel: Path, initramfs: Path) -> str:
    """What the machine prints on its serial line until it is off."""
    command = [
        *("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-smp", "4,sockets=2,cores=1,threads=2", "-m", "512"),
        *("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", "console=ttyS0 quiet panic=-1"),
    ]
    for node in range(NODES):
        command += ["-object", f"memory-backend-ram,id=m{node},size=256M"]
        command += ["-numa", f"node,nodeid={node},cpus={2 * node}-{2 * node + 1},memdev=m{node}"]
    command += ["-numa", "dist,src=0,dst=1,val=21"]
    for node in range(NODES):
        command += _devices_of(node)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace")
    if "END" not in done.stdout:
        raise SystemExit(f"the machine did not come up: {done.stderr or done.stdout[-2000:]}")
    return done.stdout


def _devices_of(node: int) -> list[str]:
    """A host bridge with a switch, and behind it displays and a network card; one more card at a port of its own."""
    devices = [
        f"pxb-pcie,id=host{node},bus=pcie.0,bus_nr={64 * (node + 1)},numa_node={node}",
        f"pcie-root-port,id=root{node},bus=host{node},slot={2 * node},chassis={10 * node + 1}",
        f"x3130-upstream,id=up{node},bus=root{node}",
        f"pcie-root-port,id=second{node},bus=host{node},slot={2 * node + 1},chassis={10 * node + 2}",
    ]
    for place in range(DISPLAYS + 1):
        port = f"down{node}.{place}"
        devices.append(f"xio3130-downstream,id={port},bus=up{node},slot={place},chassis={10 * node + 3 + place}")
        devices.append(f"bochs-display,bus={port}" if place < DISPLAYS else f"e1000e,bus={port}")
    devices.append(f"e1000e,bus=second{node}")
    return [word for device in devices for word in ("-device", device)]


def parse(printed: str) -> Tree:
    """The tree that the lines between BEGIN and END give; displays become GPUs."""
    tree: Tree = {}
    lines = printed.replace("\r", "").partition("BEGIN\n")[2].partition("\nEND")[0].splitlines()
    files = dict(line.split("\t", 1) for line in lines if "\t" in line)
    displays = {path.rpartition("/")[0] for path, text in files.items() if text == DISPLAY_VENDOR}
    for path, text in files.items():
        folder, _, name = path.rpartition("/")
        said = {"vendor": "0x10de", "class": "0x030200"}.get(name, text) if folder in displays else text
        here = tree
        for part in folder.split("/"):
            below = here.setdefault(part, {})
            assert isinstance(below, dict)
            here = below
        here[name] = LINK + said[1:] if said.startswith("@") else said
    return tree


if __name__ == "__main__":
    sys.exit(main())
