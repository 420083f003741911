"""The project's objects, as a user writes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def dataset(name: str, source: Path | str, **spec: Any) -> dict[str, Any]:
    """A Dataset."""
    return {
        "apiVersion": "dsagent.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": name},
        "spec": {"source": str(source), **spec},
    }


def cluster_dataset(name: str, source: Path | str, **spec: Any) -> dict[str, Any]:
    """A ClusterDataset."""
    return dataset(name, source, **spec) | {"kind": "ClusterDataset"}


def annotated(pod: Mapping[str, Any], datasets: str, **annotations: str) -> dict[str, Any]:
    """The pod with our annotations; in the others' names `_` stands for `-`."""
    ours = {"dsagent.io/datasets": datasets}
    ours |= {f"dsagent.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {**pod, "metadata": {**pod["metadata"], "annotations": ours}}


def job(of: Mapping[str, Any]) -> dict[str, Any]:
    """A Job of the pod's name that tries it once."""
    template = {"metadata": {"annotations": of["metadata"]["annotations"]}, "spec": of["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": of["metadata"]["name"]},
        "spec": {"backoffLimit": 0, "template": template},
    }


def make_files(folder: Path, count: int = 3, size: int = 1000, content: str = "a") -> Path:
    """A folder with files of one letter each."""
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"file{number:05}").write_text(content * size)
    return folder
