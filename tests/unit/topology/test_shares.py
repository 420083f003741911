"""The file with other devices to serve: what is in it, and what is wrong with it."""

from pathlib import Path

import pytest

from gpu_topology.device_plugin.shares import load_shares
from gpu_topology.errors import BadFile

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "gpu-topology.md"


def test_the_guides_example_is_read(tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(GUIDE.read_text().partition("<!-- file: devices.yaml -->\n```yaml\n")[2].partition("```")[0])
    whole, shares = load_shares(file)
    assert [offer.id for offer in whole.offers] == ["npu0", "npu1"]
    assert [offer.numa_node for offer in whole.offers] == [0, 1]
    assert len(shares.offers) == 32


NPU = "{name: example.com/npu, variable: NPU, devices: {npu0: {paths: [/dev/npu0]}}}"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "the file has to hold resources"),
        ("resources: 1", "resources cannot be 1"),
        (f"resources: [{NPU}, {NPU}]", "resource example.com/npu is named twice"),
        (f"resources: [{NPU.replace('example.com/npu', 'npu')}]", "'npu' is not the name of a resource"),
        (f"resources: [{NPU.replace('variable', 'unit: MB, variable')}]", "unit is whole or GB, not 'MB'"),
        (f"resources: [{NPU.replace('variable', 'unit: GB, variable')}]", "npu0 has to hold paths, memory"),
        (f"resources: [{NPU.replace('/dev/npu0', 'npu0')}]", "list of absolute paths"),
        (f"resources: [{NPU.replace('[/dev/npu0]', '[/dev/npu0], numa_node: one')}]", "numa_node cannot be 'one'"),
        ("resources: [", "while parsing"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(tmp_path: Path, text: str, cause: str) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(text)
    with pytest.raises(BadFile, match="cannot read the devices") as found:
        load_shares(file)
    assert cause in str(found.value)
