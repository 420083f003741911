"""An agent inside the test's own process with a cluster in memory and a folder of a kubelet's."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsagent.adapters.kubelet import Kubelet
from dsagent.adapters.throttle import Throttle
from dsagent.agent.agent import Agent, Shares
from dsagent.core.bound_pods import MountedVersion
from dsagent.core.cluster import (
    CLUSTER_DATASETS,
    DATASETS,
    EVENTS,
    NAMESPACES,
    NODE_DATASET_CACHES,
    NODES,
    PODS,
    Object,
)
from dsagent.core.datasets import DatasetKey
from dsagent.core.errors import NoSuchObject
from dsagent.entrypoints.serve.hub import Hub
from dsagent.entrypoints.serve.identity import NoTokens
from dsagent.entrypoints.serve.kubernetes.presence import Presence
from dsagent.entrypoints.serve.sources import Allowed
from dsagent.entrypoints.serve.state import State
from dsagent.service.settings import Settings
from dsagent.wiring import local_agent
from tests.fakes.cluster import MemoryCluster

NODE = "n1"
NAMESPACE = "research"


class MovableKubelet(Kubelet):
    """A kubelet whose mounts the test says; its folders are real."""

    def __init__(self, root: Path) -> None:
        self.now: list[MountedVersion] = []
        self.folder = root / "pods"
        self.folder.mkdir(parents=True, exist_ok=True)
        super().__init__(str(root), in_container=False)

    def mounted(self) -> list[MountedVersion]:
        return list(self.now)


class ClusterAgent:
    """An agent on NODE that may read sources below `sources`. It can be ended and begun again."""

    def __init__(self, scratch: Path, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.sources = scratch / "sources"
        self.sources.mkdir(exist_ok=True)
        self.kubelet = MovableKubelet(scratch / "kubelet")
        self.root = scratch / "root"
        self.agent: Agent | None = None
        self.presence: Presence | None = None

    def begin(self) -> Agent:
        settings = Settings(self.root, keep_free=0, workers=1)
        agent = local_agent(settings, Shares(1, 16), Throttle(), self.kubelet.mounted)
        allowed = Allowed(folders=(str(self.sources),))
        self.state = State(agent, Throttle(), Hub(agent.events), NoTokens(), frozenset(), allowed)
        self.presence = Presence(self.cluster, NODE, self.kubelet, self.state)
        self.presence.prepare()
        agent.start()
        self.presence.start()
        self.agent = agent
        return agent

    def end(self) -> None:
        if self.presence is not None and self.agent is not None:
            self.presence.stop()
            self.agent.close(0)
        self.cluster.forget()  # wakes up what watches
        self.agent = self.presence = None

    def source(self, name: str, content: str = "data") -> str:
        """A source of one file."""
        folder = self.sources / name
        folder.mkdir()
        (folder / "file").write_text(content)
        return str(folder)

    def dataset(self, name: str, source: str, **spec: Any) -> Object:
        body = {"metadata": {"name": name}, "spec": {"source": source, **spec}}
        return self.cluster.create(DATASETS, body, NAMESPACE)

    def shared(self, name: str, source: str, **spec: Any) -> Object:
        body = {"metadata": {"name": name}, "spec": {"source": source, **spec}}
        return self.cluster.create(CLUSTER_DATASETS, body)

    def bind(self, name: str, datasets: list[dict[str, Any]], **environment: str) -> str:
        """A pod that the webhook has been at appears on the node; kubelet makes its folder. Gives its UID."""
        told = {"DSAGENT_DATASETS": json.dumps(datasets), **environment}
        env = [{"name": key, "value": value} for key, value in told.items()]
        body = {
            "metadata": {"name": name, "annotations": {"dsagent.io/datasets": "x"}},
            "spec": {
                "nodeName": NODE,
                "initContainers": [{"name": "dsagent-wait", "env": env}],
                "containers": [{"name": "main"}],
            },
            "status": {"phase": "Pending"},
        }
        uid: str = self.cluster.create(PODS, body, NAMESPACE)["metadata"]["uid"]
        (self.kubelet.folder / uid).mkdir()
        return uid

    def clean(self, uid: str) -> None:
        """Kubelet has nothing left of a pod."""
        self.kubelet.now = [one for one in self.kubelet.now if one.pod != uid]
        shutil.rmtree(self.kubelet.folder / uid)

    def mount(self, uid: str, name: str) -> None:
        """Kubelet mounts what a pod's link leads to."""
        link = self.root / "pods" / uid / name
        *_, namespace, dataset, version_id, _data = link.resolve(strict=True).parts
        self.kubelet.now.append(MountedVersion(uid, DatasetKey(namespace, dataset), version_id))

    def phase(self, name: str, phase: str) -> None:
        self.cluster.patch(PODS, name, {"status": {"phase": phase}}, NAMESPACE)

    def task(self, uid: str) -> Any:
        assert self.agent is not None
        return next((task for task in self.agent.tasks() if task.id == uid), None)

    def events(self, reason: str) -> list[Mapping[str, Any]]:
        return [one for one in self.cluster.listing(EVENTS).items if one["reason"] == reason]

    def report(self) -> Mapping[str, Any]:
        """The status of the node's NodeDatasetCache, or nothing before there is one."""
        try:
            found: Mapping[str, Any] = self.cluster.get(NODE_DATASET_CACHES, NODE).get("status") or {}
        except NoSuchObject:
            return {}
        return found


@contextmanager
def cluster_agent(scratch: Path) -> Iterator[ClusterAgent]:
    """A cluster with a node and a namespace, and its agent, begun."""
    cluster = MemoryCluster()
    cluster.create(NODES, {"metadata": {"name": NODE}})
    cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {"team": "vision"}}})
    found = ClusterAgent(scratch, cluster)
    found.begin()
    try:
        yield found
    finally:
        found.end()
