"""What is known about a story that failed: the last of what the parts said, and the events of its namespaces."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.e2e.kube import Namespace
from tools.cluster.chart import NAMESPACE
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster

_LINES, _WIDTH = 30, 300


def evidence(cluster: Cluster, namespaces: Sequence[Namespace]) -> Iterator[tuple[str, str]]:
    """Titles and texts."""

    def said(*arguments: str) -> str:
        done = kubectl(cluster, *arguments, check=False)
        return done.stdout + done.stderr

    for namespace in namespaces:
        place = f"--namespace={namespace.name}"
        yield f"pods of {namespace.name}", said("get", "pods", place, "--output=wide")
        yield f"events of {namespace.name}", said("events", place)
        names = said("get", "pods", place, "--output=name").split()
        for name in names:
            logs = ("logs", name, place, "--all-containers", "--prefix", "--ignore-errors", f"--tail={_LINES}")
            yield f"{name} of {namespace.name}", said(*logs)
    yield f"pods of {NAMESPACE}", said("get", "pods", f"--namespace={NAMESPACE}", "--output=wide")
    for part in ("agent", "webhook", "controller"):
        selected = ("logs", f"--namespace={NAMESPACE}", f"--selector=app.kubernetes.io/component={part}", "--prefix")
        yield part, said(*selected, f"--tail={_LINES}")
    for node in cluster.nodes:
        yield f"kubelet of {node.name}", _last(cluster.logs / node.name / "kubelet.log")
        yield f"containerd of {node.name}", _last(cluster.logs / node.name / "containerd.log")


def _last(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else ["(no log)"]
    return "\n".join([line[:_WIDTH] for line in lines if "level=info" not in line][-_LINES:])
