"""What is made of NVML's answers; the library is replaced by one that gives those of known machines."""

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_topology.nvml import GpuFacts, read_facts, sysfs_address

ENABLED, GPU, SWITCH, UNKNOWN = 1, 0, 2, 255


class Refused(Exception):
    """NVMLError."""


@dataclass
class Answers:
    """NVML on a machine: of each GPU its links, as (kind, peer)."""

    links: dict[str, list[tuple[int, str]]]
    boards: dict[str, int] = field(default_factory=dict)
    NVMLError = Refused
    NVML_FEATURE_ENABLED = ENABLED
    NVML_NVLINK_DEVICE_TYPE_IBMNPU = 1
    is_open: bool = False

    def nvmlInit(self) -> None:  # noqa: N802
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.links)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return list(self.links)[index]

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"0000{handle.upper()}".encode())

    def nvmlDeviceGetName(self, _: str) -> str:  # noqa: N802
        return "NVIDIA A100"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetMultiGpuBoard(self, handle: str) -> int:  # noqa: N802
        return int(handle in self.boards)

    def nvmlDeviceGetBoardId(self, handle: str) -> int:  # noqa: N802
        return self.boards[handle]

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:  # noqa: N802
        if link >= len(self.links[handle]):
            raise Refused
        return ENABLED

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: str, link: int) -> int:  # noqa: N802
        return self.links[handle][link][0]

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, link: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"0000{self.links[handle][link][1].upper()}".encode())


A, B = "0000:3b:00.0", "0000:af:00.0"


def facts(monkeypatch: pytest.MonkeyPatch, answers: object) -> Any:
    monkeypatch.setitem(sys.modules, "pynvml", answers)
    return read_facts()


def test_links_to_gpus_are_counted_by_peer_and_those_to_switches_together(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers({A: [(GPU, B), (GPU, B), (SWITCH, "0000:c4:00.0")], B: [(GPU, A), (GPU, A)]})
    found = facts(monkeypatch, answers)
    assert found[A] == GpuFacts("NVIDIA A100", f"GPU-{A}", "", {B: 2}, 1)
    assert found[B].nvlinks == {A: 2}
    assert not answers.is_open


def test_links_whose_end_a_virtual_machine_hides_lead_to_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts(monkeypatch, Answers({A: [(UNKNOWN, "ffff:ff:ff.f")] * 12}))[A].switch_nvlinks == 12


def test_links_to_a_processor_join_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(monkeypatch, Answers({A: [(Answers.NVML_NVLINK_DEVICE_TYPE_IBMNPU, "0004:00:00.0")] * 3}))
    assert (found[A].nvlinks, found[A].switch_nvlinks) == ({}, 0)


def test_gpus_of_one_card_share_its_board(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(monkeypatch, Answers({A: [], B: []}, boards={A: 0x2A, B: 0x2A}))
    assert found[A].board == found[B].board == "2a"


def test_what_a_driver_refuses_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(Answers):
        def nvmlDeviceGetUUID(self, *_: object) -> str:  # noqa: N802
            raise Refused

        def nvmlDeviceGetNvLinkRemoteDeviceType(self, *_: object) -> int:  # noqa: N802
            raise Refused

    assert facts(monkeypatch, Old({A: [(GPU, B)], B: []}))[A] == GpuFacts("NVIDIA A100", "", "", {B: 1}, 0)


def test_no_driver_is_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent(Answers):
        def nvmlInit(self) -> None:  # noqa: N802
            raise Refused

    assert facts(monkeypatch, Absent({A: []})) == {}


def test_the_library_that_is_installed_has_all_that_is_asked_of_it() -> None:
    pynvml = pytest.importorskip("pynvml", reason="pip install nvidia-ml-py")
    names = [name for name in vars(Answers) if name.startswith(("nvml", "NVML"))]
    assert [name for name in names if not hasattr(pynvml, name)] == []
    assert read_facts() == {} or all(fact.name for fact in read_facts().values())


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        (b"00000000:3B:00.0", "0000:3b:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_bus_ids_become_what_sysfs_writes(bus_id: object, address: str) -> None:
    assert sysfs_address(bus_id) == address
