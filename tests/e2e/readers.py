"""A pod that reads its dataset again and again, and notes what it has read where its node can see it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.kube import Namespace, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated
from tools.cluster.rooms import wait_until

_NOTES = "/notes/sums"


@dataclass(frozen=True)
class Reader:
    """Such a pod, running on a node; `whole` is the digest of all that it should read."""

    node: NodeInside
    uid: str
    whole: str

    def sums(self) -> list[str]:
        """The digest of each reading so far."""
        volume = f"var/lib/kubelet/pods/{self.uid}/volumes/kubernetes.io~empty-dir/notes"
        text = (self.node.room.directory / volume / "sums").read_text()
        return [line.split()[0] for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def reads_on(self) -> None:
        """See that it has never read anything but the whole, and does so once more from now on."""
        now = len(self.sums())
        wait_until(lambda: len(self.sums()) >= now + 2, "the pod to read its dataset once more", 60)
        assert set(self.sums()) == {self.whole}


def start_reader(namespace: Namespace, node: NodeInside, dataset: str, source: Path, **spec: Any) -> Reader:
    """Start one, as a pod called `reads`; SIGTERM does not end it."""
    script = f"trap '' TERM; while :; do cat /datasets/{dataset}/* | sha256sum >> {_NOTES}; sleep 0.2; done"
    reads = pod("reads", "sh", "-c", script, nodeName=node.name, **spec)
    reads["spec"]["volumes"] = [{"name": "notes", "emptyDir": {}}]
    reads["spec"]["containers"][0]["volumeMounts"] = [{"name": "notes", "mountPath": "/notes"}]
    namespace.apply(annotated(reads, dataset))
    uid = namespace.wait_until_running("reads")["metadata"]["uid"]
    whole = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(source.iterdir())))
    reader = Reader(node, uid, whole.hexdigest())
    reader.reads_on()
    return reader
