"""What a container gets of the device plugin, and what it would rather give."""

import shutil
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from gpu_topology.device_plugin.shares import Shares
from tests.integration.device_plugin.conftest import FIRST, OF_FIRST, UUID, Node


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
