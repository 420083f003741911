"""The pod of docs/guides/kubernetes-plain.yaml, for clusters that have agents and no webhook."""

from pathlib import Path
from typing import Any

import yaml

from tests.e2e.kube import PYTHON, Namespace, phase

_EXAMPLE = Path(__file__).parents[2] / "docs" / "guides" / "kubernetes-plain.yaml"
_READ = """
for file in /datasets/images/*; do cat "$file"; done
id -u
touch /datasets/images/new 2>&1
touch "$(readlink /datasets/images)/new" 2>&1
exit 0
"""


def job(name: str, source: Path) -> dict[str, Any]:
    """The documented one, with what it says is the reader's."""
    document: dict[str, Any] = yaml.safe_load(_EXAMPLE.read_text())
    document["metadata"]["name"] = name
    (init,) = document["spec"]["template"]["spec"]["initContainers"]
    (main,) = document["spec"]["template"]["spec"]["containers"]
    init["env"][0]["value"] = f"images={source}"
    main["image"] = PYTHON
    main["command"] = ["sh", "-c", _READ]
    document["spec"]["template"]["spec"]["nodeName"] = "node1"
    return document


def end(namespace: Namespace, name: str) -> str:
    """The name of the Job's pod, when it has ended."""
    namespace.wait("job", name, lambda found: bool(found.get("status", {}).get("conditions")), "to end", 180)
    (pod,) = [pod for pod in namespace.all("pods") if pod["metadata"]["labels"]["job-name"] == name]
    assert phase(pod) == "Succeeded", namespace.logs(pod["metadata"]["name"], "datasets")
    return str(pod["metadata"]["name"])


def test_it_reads_its_data_read_only_and_the_next_one_hits(namespace: Namespace, sources: Path) -> None:
    source = sources / "images"
    source.mkdir()
    (source / "one").write_text("first\n")
    (source / "two").write_text("second\n")

    namespace.apply(job("first", source))
    pod = end(namespace, "first")
    read = namespace.logs(pod, "train").splitlines()
    assert read[:3] == ["first", "second", "1000"]
    assert all("Read-only file system" in line for line in read[3:])
    assert "fetched" in namespace.logs(pod, "datasets")

    namespace.apply(job("second", source))
    assert "hit" in namespace.logs(end(namespace, "second"), "datasets")
