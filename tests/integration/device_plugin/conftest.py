"""The device plugin with a kubelet that is a gRPC server, on the two-socket machine as files that change."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_topology.device_plugin.gpus import Gpus, Terms
from gpu_topology.device_plugin.process import Process
from gpu_topology.device_plugin.resource import Backend
from gpu_topology.device_plugin.rivals import find_rival
from gpu_topology.recording import load_recording
from gpu_topology.sysfs import Directory
from tests.machines.build import MACHINES
from tests.machines.trees import put, tree_of
from tests.support.command import HANG_SECONDS
from tests.support.kubelet import Endpoint, Kubelet

MACHINE = "roce-2socket"
FIRST, SECOND = "dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2"
OF_FIRST = ["gpu0/mlx5_4", "gpu1/mlx5_5", "gpu2/mlx5_6", "gpu3/mlx5_7"]
OF_SECOND = ["gpu4/mlx5_8", "gpu5/mlx5_9", "gpu6/mlx5_10", "gpu7/mlx5_11"]
UUID = "GPU-00000000-0000-0000-0000-{:012d}"


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Path]:
    """A folder for sockets, whose paths are short."""
    with tempfile.TemporaryDirectory(prefix="dp-") as folder:
        yield Path(folder)


@pytest.fixture
def kubelet(short: Path) -> Iterator[Kubelet]:
    kubelet = Kubelet(short)
    kubelet.start()
    yield kubelet
    kubelet.stop()


class Node:
    """The machine as files, and the plugin that serves it, in a thread of this process."""

    def __init__(self, folder: Path, kubelet: Kubelet) -> None:
        self.folder = folder
        self.kubelet = kubelet
        self.sysfs = put(tree_of(MACHINE), folder / "sys")
        for vf, number in (("0000:1d:00.2", 4), ("0000:1d:00.3", 5), ("0000:9e:00.2", 8)):
            self.device(vf).joinpath(f"infiniband_verbs/uverbs{number}").mkdir(parents=True)
        (self.sysfs / "class/misc/rdma_cm").mkdir(parents=True)
        self.terms = Terms(folder / "own")
        (folder / "own").mkdir()
        self.node_file = folder / "own" / "node.json"
        self.process: Any = None
        self.gpus: Any = None
        self._loop: Any = None

    def device(self, pci: str) -> Path:
        return (self.sysfs / "bus/pci/devices" / pci).resolve()

    @contextmanager
    def served(self, *others: Backend) -> Iterator[None]:
        recorded = load_recording(MACHINES / MACHINE)
        linked = replace(recorded.facts["0000:19:00.0"], nvlinks={"0000:1b:00.0": 2})  # gpu0 and gpu2
        facts = {**recorded.facts, "0000:19:00.0": linked}
        inputs = replace(recorded, sysfs=Directory(self.sysfs), facts=facts)
        folder = self.kubelet.plugins
        self.gpus = Gpus(
            lambda: inputs, self.node_file, self.terms, rival=lambda topology, own: find_rival(folder, topology, own)
        )
        is_up = threading.Event()

        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            self.process = Process(folder, [self.gpus, *others])
            is_up.set()
            await self.process.run()

        failures: list[BaseException] = []

        def work() -> None:
            try:
                asyncio.run(run())
            except BaseException as error:  # noqa: BLE001 - raised where the test sees it
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        is_up.wait(HANG_SECONDS)
        try:
            yield
        finally:
            if not failures:
                self._loop.call_soon_threadsafe(self.process.stop)
            thread.join()
        assert not failures

    def look(self) -> None:
        """Lets the plugin look now, instead of within two seconds."""
        self._loop.call_soon_threadsafe(self.process.wake)

    def count_looks(self, wanted: int) -> int:
        """Waits until the plugin has looked as often at a machine that stays as it is."""
        done = threading.Semaphore(0)
        real: Callable[[], Any] = self.gpus.look

        def look() -> Any:
            found = real()
            done.release()
            return found

        self.gpus.look = look
        for _ in range(wanted):
            self.look()
            assert done.acquire(timeout=HANG_SECONDS)
        return wanted

    def registered(self, count: int) -> dict[str, Endpoint]:
        """The sockets of the next resources that register."""
        requests = [self.kubelet.next_registered() for _ in range(count)]
        assert all(request.version == "v1beta1" for request in requests)
        assert all(request.options.get_preferred_allocation_available for request in requests)
        return {request.resource_name: Endpoint(self.kubelet.plugins / request.endpoint) for request in requests}


@pytest.fixture
def node(tmp_path: Path, kubelet: Kubelet) -> Node:
    return Node(tmp_path, kubelet)
