"""As many virtual functions on each RoCE card as it has GPUs near it: what that takes, and doing it."""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_topology.api import Gpu, Nic, Rail
from gpu_topology.errors import NotPermitted, TopologyError

_DEVICES = "bus/pci/devices"


@dataclass(frozen=True)
class Plan:
    """What one card has and is to have; `obstacle` says why it cannot have it, else it is empty."""

    nic: Nic
    gpus: tuple[Gpu, ...]
    obstacle: str

    @property
    def is_met(self) -> bool:
        """Whether the card has enough; one that has more keeps them, for somebody may use them."""
        return len(self.nic.vfs) >= len(self.gpus)


def plan_vfs(rails: Iterable[Rail]) -> tuple[Plan, ...]:
    """A plan for each RoCE card with a subnet, by PCI address."""
    plans = [_plan(nic, rail.near[nic.pci]) for rail in rails for nic in rail.nics]
    return tuple(sorted(plans, key=lambda plan: plan.nic.pci))


def _plan(nic: Nic, gpus: tuple[Gpu, ...]) -> Plan:
    obstacle = ""
    if len(nic.vfs) >= len(gpus):
        pass
    elif not nic.max_vfs:
        obstacle = "it has no SR-IOV: switch it on in the card's firmware and in the BIOS, and boot"
    elif nic.max_vfs < len(gpus):
        obstacle = f"its firmware allows {nic.max_vfs}: raise that (mlxconfig: NUM_OF_VFS), and boot"
    elif nic.vfs:
        obstacle = (
            f"it has {len(nic.vfs)}, and a number can only be changed by way of 0, which takes them from their users: "
            f"when nobody uses them, write 0 to /sys/{_DEVICES}/{nic.pci}/sriov_numvfs"
        )
    return Plan(nic, gpus, obstacle)


def apply_plan(plan: Plan, sysfs_root: Path) -> None:
    """Makes the card's virtual functions, unless it has enough. Raises TopologyError."""
    if plan.is_met:
        return
    action, subject = "make virtual functions on", f"{plan.nic.name} ({plan.nic.pci})"
    if plan.obstacle:
        raise TopologyError(action, subject, plan.obstacle)
    file = sysfs_root / _DEVICES / plan.nic.pci / "sriov_numvfs"
    try:
        # No O_CREAT: what is not there is not to be made.
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, str(len(plan.gpus)).encode())
        finally:
            os.close(descriptor)
        made = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        cause = error.strerror or str(error)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "run it as root, where sysfs is mounted for writing"
            raise NotPermitted(action, subject, cause, hint) from error
        hint = "the kernel's log (dmesg) says why; the card needs its driver, memory space for BARs and the IOMMU"
        raise TopologyError(action, subject, cause, hint) from error
    if made != str(len(plan.gpus)):
        raise TopologyError(action, subject, f"it has {made} after {len(plan.gpus)} were asked for", "see dmesg")
