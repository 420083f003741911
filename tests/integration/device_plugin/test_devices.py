"""Which devices the plugin says are there, and which of them are well."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from gpu_topology.node_file import load_node_file
from tests.integration.device_plugin.conftest import FIRST, MACHINE, OF_FIRST, OF_SECOND, SECOND, UUID, Node
from tests.machines.build import MACHINES
from tests.support.command import HANG_SECONDS
from tests.support.kubelet import Kubelet


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
            looks = node.count_looks(3)
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
        node.count_looks(2)
        assert kubelet.registered.empty()
        kubelet.start()
        assert set(node.registered(2)) == {FIRST, SECOND}


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
        node.count_looks(2)
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
