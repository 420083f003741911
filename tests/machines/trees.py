"""Recorded trees as real folders."""

from collections.abc import Mapping
from pathlib import Path

from gpu_topology.recording import load_recording
from gpu_topology.sysfs import LINK, Recorded
from tests.machines.build import MACHINES


def tree_of(name: str) -> Mapping[str, object]:
    """The sysfs of a recorded machine."""
    sysfs = load_recording(MACHINES / name).sysfs
    assert isinstance(sysfs, Recorded)
    return sysfs._tree


def put(tree: Mapping[str, object], folder: Path) -> Path:
    """Writes the tree below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in tree.items():
        if isinstance(value, Mapping):
            put(value, folder / name)
        elif isinstance(value, str) and value.startswith(LINK):
            (folder / name).symlink_to(value.removeprefix(LINK))
        else:
            (folder / name).write_text(f"{value}\n")
    return folder
