"""What the NVIDIA driver says of its GPUs, where its library is there: names, UUIDs, boards, NVLinks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_LINKS = 64  # of a GPU; NVML refuses those it has not


@dataclass(frozen=True)
class GpuFacts:
    """One GPU as the driver knows it; fields as in `Gpu`."""

    name: str = ""
    uuid: str = ""
    board: str = ""
    nvlinks: Mapping[str, int] = field(default_factory=dict)
    switch_nvlinks: int = 0


def read_facts() -> Mapping[str, GpuFacts]:
    """The facts of each GPU, by PCI address; nothing without the library, a driver or GPUs."""
    try:
        import pynvml  # noqa: PLC0415 - of an extra
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        return _facts(pynvml)
    finally:
        _ask(pynvml, pynvml.nvmlShutdown)


def sysfs_address(bus_id: object) -> str:
    """A bus id of NVML (00000000:3B:00.0) as sysfs writes it; larger domains keep their digits."""
    text = (bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else str(bus_id)).lower()
    domain, _, rest = text.partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def _facts(nvml: Any) -> Mapping[str, GpuFacts]:
    handles = {}
    for index in range(_ask(nvml, nvml.nvmlDeviceGetCount) or 0):
        handle = _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        info = None if handle is None else _ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)
        if info is not None:
            handles[sysfs_address(info.busId)] = handle
    found = {}
    for pci, handle in handles.items():
        nvlinks, to_switches = _nvlinks(nvml, handle, frozenset(handles))
        shared = _ask(nvml, nvml.nvmlDeviceGetMultiGpuBoard, handle)
        board = _ask(nvml, nvml.nvmlDeviceGetBoardId, handle) if shared else None
        found[pci] = GpuFacts(
            name=_text(_ask(nvml, nvml.nvmlDeviceGetName, handle)),
            uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
            board="" if board is None else f"{board:x}",
            nvlinks=nvlinks,
            switch_nvlinks=to_switches,
        )
    return found


def _nvlinks(nvml: Any, handle: object, gpus: frozenset[str]) -> tuple[Mapping[str, int], int]:
    """The active NVLinks to each other GPU, and to switches. A virtual machine hides these: who is there, is one."""
    direct: dict[str, int] = {}
    switched = 0
    for number in range(_MOST_LINKS):
        if _ask(nvml, nvml.nvmlDeviceGetNvLinkState, handle, number) != nvml.NVML_FEATURE_ENABLED:
            continue
        kind = _ask(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number)
        info = _ask(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
        peer = "" if info is None else sysfs_address(info.busId)
        if peer in gpus:
            direct[peer] = direct.get(peer, 0) + 1
        elif kind != nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
            switched += 1
    return direct, switched


def _ask(nvml: Any, question: Callable[..., Any], *arguments: object) -> Any:
    """The answer, or None: GPUs, drivers and their versions differ in what they answer."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _text(answer: object) -> str:
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    return answer if isinstance(answer, str) else ""
