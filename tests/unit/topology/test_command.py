"""gpu-topology as it is typed; what needs interfaces is in tests/integration/test_gpu_topology.py."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gpu_topology.command import main
from gpu_topology.node_file import NodeFile, save_node_file
from tests.machines.build import MACHINES
from tests.machines.trees import put, tree_of

PATENT = f"--from={MACHINES / 'roce-2socket'}"
PAPER = f"--from={MACHINES / 'paper-4gpu'}"


class Typed:
    """Runs the command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["gpu-topology", *map(str, words)])
        try:
            code = main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(monkeypatch, capsys)


def test_show_json_is_the_contract(typed: Typed) -> None:
    code, out, _ = typed("show", PATENT, "-o", "json", "--resource", "inspur.com/gpu-roce{n}")
    shown = json.loads(out)
    assert code == 0
    assert shown["gpus"][0] == {
        "id": "gpu0",
        "pci": "0000:19:00.0",
        "numa_node": 0,
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "name": "NVIDIA A100-PCIE-40GB",
    }
    assert shown["nics"][0] == {
        "name": "mlx5_0",
        "pci": "0000:1d:00.0",
        "numa_node": 0,
        "roce": True,
        "subnet": "10.1.1.0/24",
        "vfs": ["mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"],
    }
    assert (shown["matrix"]["gpu0"]["gpu1"], shown["matrix"]["gpu4"]["mlx5_0"]) == ("PIX", "SYS")
    assert shown["scores"]["gpu0"]["gpu1"] == 50
    assert shown["classes"] == {
        "inspur.com/gpu-roce1": ["gpu0/mlx5_4", "gpu1/mlx5_5", "gpu2/mlx5_6", "gpu3/mlx5_7"],
        "inspur.com/gpu-roce2": ["gpu4/mlx5_8", "gpu5/mlx5_9", "gpu6/mlx5_10", "gpu7/mlx5_11"],
    }


def test_show_table_reads_as_nvidia_smi_does(typed: Typed) -> None:
    _, out, _ = typed("show", PAPER)
    assert out.splitlines()[:5] == [
        "      gpu0  gpu1  gpu2  gpu3  CPUs  NUMA",
        "gpu0  X     PIX   PIX   NV4   0-15  0",
        "gpu1  PIX   X     PIX   PIX   0-15  0",
        "gpu2  PIX   PIX   X     PIX   0-15  0",
        "gpu3  NV4   PIX   PIX   X     0-15  0",
    ]


def test_show_tree_draws_what_hangs_below_what(typed: Typed) -> None:
    _, out, _ = typed("show", "--from", MACHINES / "qemu-2numa", "-o", "tree")
    assert out.splitlines()[:8] == [
        "NUMA node 0: CPUs 0-1, 0 GiB",
        "└── pci0000:40",
        "    ├── 0000:40:00.0 › 0000:41:00.0",
        "    │   ├── 0000:43:00.0  gpu0",
        "    │   ├── 0000:44:00.0  gpu1",
        "    │   └── 0000:45:00.0  eth2",
        "    └── 0000:46:00.0  eth3",
        "NUMA node 1: CPUs 2-3, 0 GiB",
    ]


@pytest.mark.parametrize("machine", sorted(path.parent.name for path in MACHINES.glob("*/machine.json")))
def test_show_svg_is_whole_and_has_every_device_once(typed: Typed, machine: str) -> None:
    _, out, _ = typed("show", "--from", MACHINES / machine, "-o", "svg")
    picture = ET.fromstring(out)  # noqa: S314 - it is our own
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    shown = json.loads(typed("show", "--from", MACHINES / machine, "-o", "json")[1])
    width = float(picture.attrib["viewBox"].split()[2])
    for device in [*(gpu["id"] for gpu in shown["gpus"]), *(nic["name"] for nic in shown["nics"])]:
        assert texts.count(device) in (1, 2, 3)  # in the tree, and as row and column of the matrix
    assert all(float(x) < width for x in re.findall(r'<(?:text|rect)[^>]* x="([\d.]+)"', out))


def test_the_papers_example(typed: Typed) -> None:
    words = ["--available", "0,1,2,3", "--required", "2,3", "--size", "3", "--policy", "best-link", "-o", "json"]
    code, out, _ = typed("allocate", *words, PAPER)
    assert (code, json.loads(out)) == (0, {"set": [0, 2, 3], "score": 550})


def test_allocate_takes_all_gpus_for_available(typed: Typed) -> None:
    assert typed("allocate", "--size", "2", PAPER)[1] == "0,3  score 450\n"
    assert typed("allocate", "--size", "2", "--policy", "pack", PAPER)[1] == "1,2  score 50\n"
    assert typed("allocate", "--size", "4", "--required", "5", "--policy", "rail-aligned", PATENT)[1].startswith(
        "4,5,6,7"
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["allocate", "--size", "5", PAPER], 2, "no such set among 4 available"),
        (["allocate", "--size", "1", "--available", "7", PAPER], 2, "gpu7"),
        (["allocate", "--size", "1", "--available", "0", "--required", "1", PAPER], 2, "--required has to be part"),
        (["show", "--from", "/nowhere"], 3, "/nowhere/machine.json"),
        (["show", PAPER, "--resource", "gpu"], 2, "rail's number"),
        (["show", PAPER, "--overrides", "/nowhere"], 3, "/nowhere"),
        (["show", PAPER, "--node-file", str(MACHINES / "README.md")], 3, "README.md"),
        (["vfs", "apply", PATENT], 2, "it is a recording"),
        (["show", PAPER, "-o", "yaml"], 2, "invalid choice"),
        ([], 2, "VERB"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(typed: Typed, words: list[str], code: int, said: str) -> None:
    got, out, err = typed(*words)
    assert (got, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


def test_the_node_file_keeps_indices_and_numbers(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    gpus = {f"0000:{bus}:00.0": n + 10 for n, bus in enumerate(["19", "1a", "1b", "1c", "9a", "9b", "9c", "9d"])}
    save_node_file(path, NodeFile(gpus=gpus, rails={"10.1.2.0/24": 1, "10.1.1.0/24": 5}))
    shown = json.loads(typed("show", PATENT, "--node-file", path, "-o", "json")[1])
    assert list(shown["classes"]) == ["dsagent.io/gpu-roce1", "dsagent.io/gpu-roce5"]
    assert shown["classes"]["dsagent.io/gpu-roce5"][0] == "gpu10/mlx5_4"


def test_without_roce_there_is_nothing_to_plan(typed: Typed) -> None:
    assert typed("vfs", "plan", PAPER)[1] == "no RoCE card with a subnet here\n"


def test_record_writes_what_show_reads(typed: Typed, tmp_path: Path) -> None:
    root = put(tree_of("hgx-h100"), tmp_path / "sys")
    assert typed("record", tmp_path / "out", "--sysfs-root", root, "--source", "here")[0] == 0
    live = json.loads(typed("show", "--sysfs-root", root, "-o", "json")[1])
    again = json.loads(typed("show", "--from", tmp_path / "out", "-o", "json")[1])
    assert again == live
    assert len(again["gpus"]) == 8


def test_record_says_where_it_cannot_write(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = typed("record", tmp_path / "file" / "out", PAPER)
    assert code == 11
    assert "Not a directory" in err


def test_the_guides_picture_is_what_show_draws(typed: Typed) -> None:
    guides = MACHINES.parents[1] / "docs"
    assert (guides / "img" / "gpu-topology.svg").read_text() == typed("show", PATENT, "-o", "svg")[1]


def test_predict_says_where_and_why(typed: Typed) -> None:
    words = ("predict", PATENT, "--policy", "single-numa-node", "--gpus", 2, "--cpus", 4)
    assert typed(*words, "--used", "0,1,2") == (
        0,
        "Admit on NUMA node 1: everything can be allocated on the NUMA nodes that are preferred\n",
        "",
    )
    code, out, _ = typed(*words, "--used", "0,1,2,4,5,6", "-o", "json")
    verdict = json.loads(out)
    assert code == 0
    assert verdict["reason"] == "TopologyAffinityError"
    assert "gpu fits only on more nodes" in verdict["why"]
    assert verdict["affinities"] == {}
    code, out, _ = typed(*words, "--used-cpus", "1-1000")
    assert (code, out) == (2, "")
    assert typed(*words, "--used", "x")[0] == 2
    assert typed(*words, "--used", "8")[0] == 2
    assert typed("predict", PATENT, "--cpus", "nan")[0] == 2


def test_doctor_says_what_keeps_gpus_from_being_served(typed: Typed, tmp_path: Path) -> None:
    code, out, err = typed("doctor", PATENT, "--kubelet-folder", tmp_path)
    assert code == 1
    assert out.splitlines() == [
        "ok   devices: 4 of dsagent.io/gpu-roce1, 4 of dsagent.io/gpu-roce2",
        f"bad  there is no {tmp_path}/kubelet.sock; kubelet does not run, or elsewhere",
        "ok   other plugins: none",
    ]
    assert "cannot serve this node's GPUs: there is no" in err


def test_serve_needs_kubelets_folder_and_knows_its_variables(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = typed("serve", PATENT, "--folder", tmp_path, "--kubelet-folder", tmp_path / "none")
    assert (code, "cannot watch" in err) == (1, True)
    monkeypatch.setenv("GPU_TOPOLOGY_HOST_NETWORK", "perhaps")
    code, _, err = typed("serve", PATENT)
    assert code == 2
    assert "'perhaps' is neither on nor off" in err
