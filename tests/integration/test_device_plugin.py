"""The device plugin with a kubelet that is a gRPC server, on the two-socket machine as files that change."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from gpu_topology.device_plugin.gpus import Gpus, Terms
from gpu_topology.device_plugin.process import Process
from gpu_topology.device_plugin.resource import Backend
from gpu_topology.device_plugin.rivals import find_rival
from gpu_topology.device_plugin.shares import Shares
from gpu_topology.node_file import load_node_file
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

    def registered(self, count: int) -> dict[str, Endpoint]:
        """The sockets of the next resources that register."""
        requests = [self.kubelet.next_registered() for _ in range(count)]
        assert all(request.version == "v1beta1" for request in requests)
        assert all(request.options.get_preferred_allocation_available for request in requests)
        return {request.resource_name: Endpoint(self.kubelet.plugins / request.endpoint) for request in requests}


@pytest.fixture
def node(tmp_path: Path, kubelet: Kubelet) -> Node:
    return Node(tmp_path, kubelet)


def test_each_class_registers_and_lists_its_devices_with_their_numa_nodes(node: Node) -> None:
    with node.served():
        sockets = node.registered(2)
        assert set(sockets) == {FIRST, SECOND}
        assert sockets[FIRST].options().get_preferred_allocation_available
        with sockets[FIRST].watching() as first, sockets[SECOND].watching() as second:
            assert first.next() == {device: (True, [0]) for device in OF_FIRST}
            assert second.next() == {device: (True, [1]) for device in OF_SECOND}


def test_only_a_change_is_told(node: Node) -> None:
    with node.served():
        sockets = node.registered(2)
        with sockets[FIRST].watching() as first, sockets[SECOND].watching() as second:
            first.next()
            second.next()
            looks = count_looks(node, 3)
            state = node.device("0000:9e:00.0") / "infiniband/mlx5_2/ports/1/state"
            up = state.read_text()
            state.write_text("1: DOWN\n")
            node.look()
            assert second.next_healthy() == set()
            state.write_text(up)
            node.look()
            assert second.next_healthy() == set(OF_SECOND)
            assert looks >= 3
            assert first.sent.empty()
            assert second.sent.empty()


def count_looks(node: Node, wanted: int) -> int:
    """Waits until the plugin has looked as often at a machine that stays as it is."""
    done = threading.Semaphore(0)
    real: Callable[[], Any] = node.gpus.look

    def look() -> Any:
        found = real()
        done.release()
        return found

    node.gpus.look = look
    for _ in range(wanted):
        node.look()
        assert done.acquire(timeout=HANG_SECONDS)
    return wanted


def test_a_gpu_that_goes_is_unhealthy_and_comes_back_to_its_place(node: Node) -> None:
    with node.served():
        sockets = node.registered(2)
        with sockets[FIRST].watching() as first:
            first.next()
            link = node.sysfs / "bus/pci/devices/0000:1a:00.0"
            target = os.readlink(link)
            link.unlink()
            node.look()
            assert first.next() == {device: (device != "gpu1/mlx5_5", [0]) for device in OF_FIRST}
            with pytest.raises(grpc.RpcError, match="not well: gpu1/mlx5_5"):
                sockets[FIRST].allocate(["gpu1/mlx5_5"])
            assert sorted(sockets[FIRST].prefer(OF_FIRST, [], 2)) == ["gpu0/mlx5_4", "gpu1/mlx5_5"]  # never an error
            link.symlink_to(target)
            node.look()
            assert first.next_healthy() == set(OF_FIRST)


def test_a_gpu_with_an_error_of_the_driver_is_unhealthy(node: Node) -> None:
    with node.served():
        sockets = node.registered(2)
        with sockets[SECOND].watching() as second:
            second.next()
            node.gpus.unwell["0000:9a:00.0"] = "XID 79"
            node.look()
            healthy = second.next_healthy()
            assert len(healthy) == 3


def test_a_kubelet_that_starts_anew_is_registered_with_again(node: Node, kubelet: Kubelet) -> None:
    with node.served():
        before = node.registered(2)
        with before[FIRST].watching() as first:
            first.next()
            kubelet.stop()
            kubelet.start()
            sockets = node.registered(2)
        with sockets[FIRST].watching() as first:
            assert first.next_healthy() == set(OF_FIRST)


def test_a_kubelet_that_starts_later_is_waited_for(node: Node, kubelet: Kubelet) -> None:
    kubelet.stop()
    (kubelet.plugins / "kubelet.sock").unlink(missing_ok=True)
    with node.served():
        count_looks(node, 2)
        assert kubelet.registered.empty()
        kubelet.start()
        assert set(node.registered(2)) == {FIRST, SECOND}


def test_what_a_container_gets(node: Node) -> None:
    with node.served():
        sockets = node.registered(2)
        two, one = sockets[FIRST].allocate(["gpu1/mlx5_5", "gpu0/mlx5_4"], ["gpu2/mlx5_6"])
        assert dict(two.envs) == {"NVIDIA_VISIBLE_DEVICES": f"{UUID.format(1)},{UUID.format(0)}"}
        assert [(node.container_path, node.host_path, node.permissions) for node in two.devices] == [
            ("/dev/infiniband/uverbs5", "/dev/infiniband/uverbs5", "rw"),
            ("/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm", "rw"),
        ]
        (mount,) = two.mounts
        assert (mount.container_path, mount.read_only) == ("/etc/nccl.conf", True)
        assert Path(mount.host_path).read_text() == "NCCL_IB_HCA==mlx5_5\n"
        assert Path(mount.host_path).is_relative_to(node.folder / "own")
        assert dict(two.annotations) == {
            "dsagent.io/devices": "gpu1/mlx5_5,gpu0/mlx5_4",
            "dsagent.io/network-function": "mlx5_5",
        }
        assert not two.cdi_devices
        assert not one.devices  # the function has no device node here
        assert Path(one.mounts[0].host_path).read_text() == "NCCL_IB_HCA==mlx5_6\n"


def test_pods_on_the_nodes_network_are_told_interface_and_gid(node: Node) -> None:
    node.terms = replace(node.terms, host_network=True, cdi_kind="dsagent.io/gpu")
    port = node.device("0000:1d:00.2") / "infiniband/mlx5_4/ports/1"
    shutil.rmtree(port / "gid_attrs", ignore_errors=True)
    for index, (kind, gid) in enumerate(
        (
            ("IB/RoCE v1", "fe80:0000:0000:0000:0000:0000:0000:0001"),
            ("RoCE v2", "fe80:0000:0000:0000:0000:0000:0000:0001"),
            ("RoCE v2", "fd00:0000:0000:0000:0000:0000:0000:0001"),
            ("RoCE v2", "0000:0000:0000:0000:0000:ffff:0a01:0107"),
        )
    ):
        for name, text in ((f"gid_attrs/types/{index}", kind), (f"gids/{index}", gid)):
            (port / name).parent.mkdir(parents=True, exist_ok=True)
            (port / name).write_text(f"{text}\n")
    netdev = node.device("0000:1d:00.2") / "net"
    name = next(netdev.iterdir()).name
    with node.served():
        (answer,) = node.registered(2)[FIRST].allocate(["gpu0/mlx5_4"])
        text = f"NCCL_IB_HCA==mlx5_4\nNCCL_SOCKET_IFNAME=={name}\nNCCL_IB_GID_INDEX=3\n"
        assert Path(answer.mounts[0].host_path).read_text() == text
        assert [device.name for device in answer.cdi_devices] == ["dsagent.io/gpu=gpu0-mlx5_4"]


def test_preferred_devices_are_those_of_the_best_links(node: Node) -> None:
    with node.served():
        sockets = node.registered(2)
        assert sockets[FIRST].prefer(OF_FIRST, [], 2) == ["gpu0/mlx5_4", "gpu2/mlx5_6"]
        assert sockets[FIRST].prefer(OF_FIRST, ["gpu3/mlx5_7"], 3) == ["gpu0/mlx5_4", "gpu2/mlx5_6", "gpu3/mlx5_7"]


@pytest.mark.parametrize(
    ("available", "required", "size", "preferred"),
    [
        (["gpu9/mlx5_9", "gpu0/mlx5_4"], [], 1, ["gpu9/mlx5_9"]),
        (["gpu0/mlx5_4"], ["gpu1/mlx5_5"], 2, ["gpu1/mlx5_5", "gpu0/mlx5_4"]),
        (["gpu0/mlx5_4", "gpu0/mlx5_4"], [], 5, ["gpu0/mlx5_4"]),
        (["gpu0/mlx5_4"], [], -1, []),
        ([], [], 1, []),
    ],
)
def test_whatever_is_asked_there_is_a_preference(
    node: Node, available: list[str], required: list[str], size: int, preferred: list[str]
) -> None:
    with node.served():
        assert node.registered(2)[FIRST].prefer(available, required, size) == preferred


def test_devices_that_are_not_of_a_class_are_not_handed_out(node: Node) -> None:
    with node.served():
        sockets = node.registered(2)
        for wrong in (["gpu4/mlx5_8"], ["gpu0/mlx5_4", "nothing"], []):
            with pytest.raises(grpc.RpcError) as refused:
                sockets[FIRST].allocate(wrong)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert sockets[FIRST].allocate(["gpu0/mlx5_4"])


def test_ids_outlive_another_name_of_the_function_and_a_restart(node: Node) -> None:
    with node.served():
        node.registered(2)
    assert load_node_file(node.node_file).ids["0000:19:00.0"] == "gpu0/mlx5_4"
    verbs = node.device("0000:1d:00.2") / "infiniband"
    (verbs / "mlx5_4").rename(verbs / "mlx5_40")
    with node.served():
        sockets = node.registered(2)
        with sockets[FIRST].watching() as first:
            assert first.next_healthy() == set(OF_FIRST)
        (answer,) = sockets[FIRST].allocate(["gpu0/mlx5_4"])
        assert Path(answer.mounts[0].host_path).read_text() == "NCCL_IB_HCA==mlx5_40\n"


def test_nothing_is_served_beside_another_plugin_of_the_same_devices(
    node: Node, kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    known = {"nvidia.com/gpu": [UUID.format(0)]}
    kubelet.start_pod_resources(lambda: known)
    with node.served():
        count_looks(node, 2)
        assert kubelet.registered.empty()
        known.clear()
        node.look()
        sockets = node.registered(2)
        with sockets[FIRST].watching() as first:
            assert first.next_healthy() == set(OF_FIRST)
            known["intel.com/sriov"] = ["0000:1d:00.2"]
            node.look()
            assert first.next_healthy() == set()
    assert "nvidia.com/gpu has GPU-00000000-0000-0000-0000-000000000000" in caplog.text
    assert "intel.com/sriov has 0000:1d:00.2" in caplog.text


def test_other_devices_are_served_whole_and_in_shares_by_the_same_process(node: Node, tmp_path: Path) -> None:
    for name in ("davinci0", "davinci1", "card"):
        (tmp_path / name).touch()
    described = tmp_path / "devices.yaml"
    described.write_text(
        f"""
        resources:
          - name: example.com/npu
            variable: NPU_VISIBLE_DEVICES
            devices: {{npu0: {{paths: [{tmp_path}/card], numa_node: 1}}}}
          - name: example.com/npu-memory
            unit: GB
            variable: NPU_SHARES
            devices:
              npu0: {{paths: [{tmp_path}/davinci0, {tmp_path}/card], memory: 4}}
              npu1: {{paths: [{tmp_path}/davinci1], memory: 2}}
        """
    )
    with node.served(Shares(described)):
        sockets = node.registered(4)
        with sockets["example.com/npu"].watching() as whole, sockets["example.com/npu-memory"].watching() as shares:
            assert whole.next() == {"npu0": (True, [1])}
            parts = list(shares.next())
            assert parts == ["npu0-0", "npu0-1", "npu0-2", "npu0-3", "npu1-0", "npu1-1"]
            memory = sockets["example.com/npu-memory"]
            assert memory.prefer(parts, [], 2) == ["npu1-0", "npu1-1"]  # the fullest that has enough
            assert memory.prefer(parts, [], 3) == ["npu0-0", "npu0-1", "npu0-2"]
            assert set(memory.prefer(parts, ["npu0-3"], 2)) == {"npu0-3", "npu0-0"}
            (answer,) = memory.allocate(["npu0-1", "npu0-0", "npu1-0"])
            assert dict(answer.envs) == {"NPU_SHARES": "npu0=2,npu1=1"}
            assert [one.host_path for one in answer.devices] == [
                f"{tmp_path}/{name}" for name in ("davinci0", "card", "davinci1")
            ]
            (tmp_path / "card").unlink()
            node.look()
            assert whole.next_healthy() == set()
            assert shares.next_healthy() == {"npu1-0", "npu1-1"}
            with pytest.raises(grpc.RpcError, match="not there: npu0"):
                sockets["example.com/npu"].allocate(["npu0"])


def test_the_command_serves_a_recorded_machine_until_it_is_ended(short: Path, kubelet: Kubelet) -> None:
    command = [sys.executable, "-m", "gpu_topology.command", "serve", f"--from={MACHINES / MACHINE}"]
    settings = {
        "GPU_TOPOLOGY_KUBELET_FOLDER": str(kubelet.plugins),
        "GPU_TOPOLOGY_FOLDER": str(short),
        "GPU_TOPOLOGY_POLICY": "pack",
    }
    process = subprocess.Popen(command, env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True)
    try:
        names = {kubelet.next_registered().resource_name for _ in range(2)}
        assert names == {FIRST, SECOND}
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0
        assert f"registered {FIRST} with kubelet" in said
        assert load_node_file(short / "node.json").ids["0000:19:00.0"] == "gpu0/mlx5_4"
    finally:
        process.kill()
        process.wait()
