"""The node file: what it keeps, and what it refuses."""

import json
from pathlib import Path

import pytest

from gpu_topology.errors import BadFile, NotPermitted
from gpu_topology.node_file import NodeFile, load_node_file, save_node_file

WHOLE = NodeFile({"0000:19:00.0": 0}, {"0000:19:00.0": "0000:1d:00.2"}, {"10.1.1.0/24": 1})


def test_what_is_saved_is_loaded_and_none_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    assert load_node_file(path) == NodeFile()
    save_node_file(path, WHOLE)
    assert load_node_file(path) == WHOLE
    assert [one.name for one in tmp_path.iterdir()] == ["node.json"]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("{", "line 1"),
        ("[]", "objects gpus, pairs, rails and ids"),
        ('{"gpus": []}', "gpus has to be an object"),
        ('{"gpus": {"19:00.0": 0}}', "gpus cannot have '19:00.0'"),
        ('{"gpus": {"0000:19:00.0": true}}', "True"),
        ('{"gpus": {"0000:19:00.0": -1}}', "-1"),
        ('{"gpus": {"0000:19:00.0": 0, "0000:1a:00.0": 0}}', "the same value twice"),
        ('{"pairs": {"0000:19:00.0": ["0000:1d:00.2"]}}', "pairs cannot have"),
        ('{"rails": {"10.1.1.1/24": 1}}', "rails cannot have '10.1.1.1/24'"),
        ('{"rails": {"here": 1}}', "rails cannot have 'here'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_it_is(tmp_path: Path, content: str, cause: str) -> None:
    path = tmp_path / "node.json"
    path.write_text(content)
    with pytest.raises(BadFile) as caught:
        load_node_file(path)
    assert cause in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match="No such file"):
        save_node_file(tmp_path / "none" / "node.json", WHOLE)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.json"
    save_node_file(path, WHOLE)

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", fails)
    with pytest.raises(NotPermitted, match="No space left"):
        save_node_file(path, NodeFile())
    assert load_node_file(path) == WHOLE
