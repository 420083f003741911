"""What there is in the cluster, as far as it matters here. One thread owns a view: it takes the changes and answers
the requests, so neither waits for a lock.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Literal

import numpy as np

from dsagent.contract import CLUSTER_NAMESPACE
from scheduler_plugin.arrays import Arrays, Slots
from scheduler_plugin.facts import (
    UNKNOWN_BYTES,
    Cache,
    DatasetFacts,
    Host,
    Key,
    Needs,
    NodeFacts,
    PodFacts,
    Space,
    Topology,
    Wanted,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECENT = 4  # lists of names whose nodes are remembered
FILE_OVERHEAD = 2048  # bytes a file that a listing does not know of: half a block

ObjectKind = Literal["Node", "Pod", "Dataset", "ClusterDataset", "NodeDatasetCache", "NodeTopology"]
KINDS: tuple[ObjectKind, ...] = ("Dataset", "ClusterDataset", "NodeDatasetCache", "NodeTopology", "Node", "Pod")
Facts = PodFacts | DatasetFacts | Cache | Topology | Host | None


class View:
    """The cluster's facts, kept up to date by `put` and `drop`."""

    def __init__(self) -> None:
        self._arrays = Arrays()
        self._slots: dict[str, int] = {}
        self._spare: list[int] = []
        self._hosts: dict[str, Host] = {}
        self._caches: dict[str, Cache] = {}
        self._topologies: dict[str, Topology] = {}
        self._datasets: dict[Key, DatasetFacts] = {}
        self._sizes: dict[tuple[Key, str], Space] = {}
        self._pods: dict[Key, PodFacts] = {}
        self._bound: dict[str, dict[Key, PodFacts]] = {}
        self._classes: Counter[str] = Counter()  # how many nodes have each
        self._naming: dict[str, set[Key]] = {}  # the bound pods that ask for a dataset of a name
        self._recent: deque[tuple[Sequence[str], NDArray[np.intp]]] = deque(maxlen=RECENT)
        self._stale: dict[str, None] = {}  # nodes of which something has changed since their facts were made

    def put(self, kind: ObjectKind, key: Key, facts: Facts) -> None:
        """An object is there, or is otherwise than before."""
        match facts:
            case PodFacts():
                self._put_pod(key, facts)
            case DatasetFacts():
                self._put_dataset(facts)
            case _:
                self._put_node(kind, key[1], facts)

    def drop(self, kind: ObjectKind, key: Key) -> None:
        """An object is gone."""
        if kind == "Pod":
            self._unbind(key)
            self._pods.pop(key, None)
        elif kind in ("Dataset", "ClusterDataset"):
            dataset = key if kind == "Dataset" else (CLUSTER_NAMESPACE, key[1])
            self._datasets.pop(dataset, None)
            self._changed(dataset)
        else:
            self._put_node(kind, key[1], None)

    def needs(self, pod: PodFacts) -> Needs:
        """What a pod needs, as things are now."""
        wanted = tuple(self._wanted(pod.namespace, name, version) for name, version in pod.references)
        return Needs(pod, wanted, {name: count for name, count in pod.devices.items() if self._classes[name] and count})

    def pod(self, namespace: str, name: str) -> PodFacts | None:
        """A pod of which something is known."""
        return self._pods.get((namespace, name))

    def refresh(self) -> None:
        """Makes the facts of nodes anew of which something has changed; what asks for facts does it too."""
        for name in self._stale:
            self._refresh(name)
        self._stale.clear()

    def pack(self) -> None:
        """Puts the nodes' names beside each other in memory: finding 5,000 of them then takes half the time."""
        slots = np.fromiter(self._slots.values(), dtype=np.intp).tolist()
        self._slots = dict(zip([name.encode().decode() for name in self._slots], slots, strict=True))

    def columns(self, names: Sequence[str]) -> Slots:
        """The facts of these nodes, in this order; of one that is not known there are none. A list that is asked about
        again must not have been changed.
        """
        self.refresh()
        slots = next((slots for known, slots in self._recent if known is names), None)
        if slots is None:
            slots = np.fromiter(map(self._slots.get, names, repeat(0)), dtype=np.intp, count=len(names))
            self._recent.append((names, slots))
        return self._arrays.of(slots)

    def node_names(self) -> list[str]:
        """All nodes there are."""
        return sorted(self._hosts)

    def host(self, name: str) -> Host | None:
        """A node, if there is one of that name."""
        return self._hosts.get(name)

    def classes(self) -> list[str]:
        """All extended resources that nodes say they have."""
        return sorted(name for name, nodes in self._classes.items() if nodes)

    def pods_of(self, namespace: str, decision: str) -> list[PodFacts]:
        """The pods of the job that a RailDecision is of, but those that are over."""
        return [pod for pod in self._pods.values() if pod.decision == decision and pod.namespace == namespace]

    def counts(self) -> Mapping[str, int]:
        """How many objects of each kind are known."""
        return {
            "Node": len(self._hosts),
            "Pod": len(self._pods),
            "Dataset": sum(key[0] != CLUSTER_NAMESPACE for key in self._datasets),
            "ClusterDataset": sum(key[0] == CLUSTER_NAMESPACE for key in self._datasets),
            "NodeDatasetCache": len(self._caches),
            "NodeTopology": len(self._topologies),
        }

    def _put_pod(self, key: Key, pod: PodFacts) -> None:
        self._unbind(key)
        if pod.over or not (pod.references or pod.problem or pod.devices):
            self._pods.pop(key, None)
            return
        self._pods[key] = pod
        if pod.node:
            self._bound.setdefault(pod.node, {})[key] = pod
            self._stale[pod.node] = None
            for name, _ in pod.references:
                self._naming.setdefault(name, set()).add(key)

    def _unbind(self, key: Key) -> None:
        if (before := self._pods.get(key)) and before.node:
            bound = self._bound[before.node]
            del bound[key]
            if not bound:
                del self._bound[before.node]
            self._stale[before.node] = None
            for name, _ in before.references:
                self._naming[name].discard(key)
                if not self._naming[name]:
                    del self._naming[name]

    def _put_dataset(self, dataset: DatasetFacts) -> None:
        if self._datasets.get(dataset.key) != dataset:
            self._datasets[dataset.key] = dataset
            self._changed(dataset.key)

    def _changed(self, dataset: Key) -> None:
        """It has another version or size, or its name means another one now."""
        self._arrays.forget(dataset)
        for pod in self._naming.get(dataset[1], ()):
            self._stale[self._pods[pod].node] = None

    def _put_node(self, kind: ObjectKind, name: str, facts: Facts) -> None:
        if kind == "Node":
            self._hosts.pop(name, None)
            if isinstance(facts, Host):
                self._hosts[name] = facts
        elif kind == "NodeDatasetCache":
            self._caches.pop(name, None)
            if isinstance(facts, Cache):
                self._caches[name] = facts
                for key, versions in facts.held.items():
                    self._sizes.update({(key, one.version): one.size for one in versions if one.size.bytes})
        else:
            self._classes -= Counter(_classes(self._topologies.pop(name, None)))
            if isinstance(facts, Topology):
                self._topologies[name] = facts
                self._classes += Counter(_classes(facts))
        self._stale[name] = None

    def _refresh(self, name: str) -> None:
        """Makes a node's facts anew."""
        pods = self._bound.get(name, {}).values()
        cache = self._caches.get(name)
        users: Counter[Key] = Counter()
        requested: Counter[str] = Counter()
        unseen: dict[Key, Space] = {}
        for pod in pods:
            requested.update(pod.devices)
            for reference, version in pod.references:
                key = self._key(pod.namespace, reference)
                users[key] += 1
                if cache is None or key not in cache.held:
                    unseen[key] = self._wanted(pod.namespace, reference, version).size
        promised = Space(sum(size.bytes for size in unseen.values()), sum(size.inodes for size in unseen.values()))
        node = NodeFacts(
            name, name in self._hosts, cache, self._topologies.get(name), dict(users), promised, dict(requested)
        )
        if node.known or cache or node.topology or pods:
            if name not in self._slots:
                self._slots[name] = self._spare.pop() if self._spare else len(self._slots) + 1
                self._recent.clear()
            self._arrays.put(self._slots[name], node)
        elif name in self._slots:
            slot = self._slots.pop(name)
            self._recent.clear()
            self._arrays.put(slot, NodeFacts())
            self._spare.append(slot)

    def _key(self, namespace: str, name: str) -> Key:
        """Which dataset a pod of the namespace means: its namespace's own comes first."""
        if (namespace, name) not in self._datasets and (CLUSTER_NAMESPACE, name) in self._datasets:
            return CLUSTER_NAMESPACE, name
        return namespace, name

    def _wanted(self, namespace: str, name: str, version: str | None) -> Wanted:
        key = self._key(namespace, name)
        known = self._datasets.get(key, DatasetFacts(key))
        digest = version or known.version
        if version not in (None, known.version) or known.bytes is None:
            size = self._sizes.get((key, digest), Space())
            return Wanted(key, digest, size.bytes or UNKNOWN_BYTES, size)
        listed = Space(known.bytes + known.files * FILE_OVERHEAD, known.files)
        return Wanted(key, digest, known.bytes, self._sizes.get((key, digest), listed))


def _classes(topology: Topology | None) -> set[str]:
    return {one.resource for one in topology.devices} if topology else set()
