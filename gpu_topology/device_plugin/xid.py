"""Errors that the NVIDIA driver reports of its GPUs (XIDs), and whether a GPU has got over one."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from gpu_topology.nvml import sysfs_address

_WAIT_MS = 1_000
# Of the program and not of the GPU, by NVIDIA's list of XIDs: faults of an engine or a page, an instruction that is
# none, a channel that was stopped or preempted, a decoder's error.
_OF_PROGRAMS = frozenset((13, 31, 43, 45, 68, 109))
_log = logging.getLogger(__name__)


def watch_xids(report: Callable[[str, str], None], is_over: threading.Event) -> None:
    """Calls `report` with a GPU's PCI address and what happened, until it is over; ends at once without a driver."""
    try:
        import pynvml as nvml  # noqa: PLC0415 - of an extra
    except ImportError:
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return
    try:
        events = nvml.nvmlEventSetCreate()
        for index in range(nvml.nvmlDeviceGetCount()):
            _register(nvml, nvml.nvmlDeviceGetHandleByIndex(index), events)
        while not is_over.is_set():
            _wait(nvml, events, report, is_over)
    except nvml.NVMLError as error:
        _log.warning("errors of GPUs are not watched: %s", error)
    finally:
        nvml.nvmlShutdown()


def recovered(gpus: Iterable[str]) -> set[str]:
    """Which of these GPUs the driver says need no reset; none where it does not know."""
    import pynvml as nvml  # noqa: PLC0415 - only asked for when it has reported something

    well = set()
    for pci in gpus:
        try:
            handle = nvml.nvmlDeviceGetHandleByPciBusId(pci.encode())
            answer = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
        except nvml.NVMLError:
            continue
        if answer.nvmlReturn == nvml.NVML_SUCCESS and answer.value.uiVal == nvml.NVML_GPU_RECOVERY_ACTION_NONE:
            well.add(pci)
    return well


def _register(nvml: Any, handle: Any, events: Any) -> None:
    try:
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError as error:
        _log.warning("errors of a GPU are not watched: %s", error)


def _wait(nvml: Any, events: Any, report: Callable[[str, str], None], is_over: threading.Event) -> None:
    try:
        event = nvml.nvmlEventSetWait_v2(events, _WAIT_MS)
    except nvml.NVMLError_Timeout:
        return
    except nvml.NVMLError:  # a GPU has gone: sysfs says which
        is_over.wait(_WAIT_MS / 1000)
        return
    if event.eventData not in _OF_PROGRAMS:
        report(sysfs_address(nvml.nvmlDeviceGetPciInfo(event.device).busId), f"XID {event.eventData}")
