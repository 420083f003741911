"""What is made of errors that the NVIDIA driver reports; the library is replaced by one that reports some."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_topology.device_plugin.xid import recovered, watch_xids


class Refused(Exception):
    """NVMLError."""


class Timeout(Refused):
    """NVMLError_Timeout."""


class Driver:
    """NVML with one GPU, which reports these XIDs and then no more."""

    NVMLError, NVMLError_Timeout = Refused, Timeout
    nvmlEventTypeXidCriticalError = 8  # noqa: N815
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_GPU_RECOVERY_ACTION_NONE, NVML_SUCCESS = 1, 0, 0

    def __init__(self, xids: list[int], over: threading.Event) -> None:
        self.xids, self.over, self.is_open, self.action = xids, over, False, 1

    def nvmlInit(self) -> None:  # noqa: N802
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: bytes) -> int:  # noqa: N802
        if bus_id != b"0000:19:00.0":
            raise Refused
        return 0

    def nvmlDeviceGetPciInfo(self, _: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:19:00.0")

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, *_: object) -> None:  # noqa: N802
        pass

    def nvmlEventSetWait_v2(self, *_: object) -> Any:  # noqa: N802
        if not self.xids:
            self.over.set()
            raise Timeout
        return SimpleNamespace(device=0, eventData=self.xids.pop(0))

    def nvmlDeviceGetFieldValues(self, *_: object) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=self.action))]


def test_an_error_of_the_gpu_is_reported_and_one_of_a_program_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    driver = Driver([31, 79], over)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    reported: list[tuple[str, str]] = []
    watch_xids(lambda *report: reported.append(report), over)
    assert reported == [("0000:19:00.0", "XID 79")]
    assert not driver.is_open


def test_a_gpu_is_well_again_when_the_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver([], threading.Event())
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    assert recovered(["0000:19:00.0", "0000:1a:00.0"]) == set()
    driver.action = driver.NVML_GPU_RECOVERY_ACTION_NONE
    assert recovered(["0000:19:00.0", "0000:1a:00.0"]) == {"0000:19:00.0"}
