"""Small clusters for tests of the scheduler plugin, as JSON objects and as random ones."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from scheduler_plugin.objects import understand
from scheduler_plugin.view import ObjectKind, View

DIGESTS = [f"xxh3:{number:032x}" for number in range(1, 4)]
NODES = [f"n{number}" for number in range(6)]
DATASETS = ["imagenet", "coco", "laion"]
NAMESPACES = ["research", "_cluster"]
CLASSES = ["dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2"]

Object = Mapping[str, Any]


def put(view: View, document: Object) -> None:
    view.put(*understand(document["kind"], document))


def world(*documents: Object) -> View:
    view = View()
    for document in documents:
        put(view, document)
    return view


def node(name: str) -> Object:
    return {"kind": "Node", "metadata": {"name": name}}


def dataset(name: str, version: str = DIGESTS[0], size: int = 1_000_000, namespace: str = "research") -> Object:
    status = {"version": version, "bytes": size, "files": 10}
    if namespace == "_cluster":
        return {"kind": "ClusterDataset", "metadata": {"name": name}, "status": status}
    return {"kind": "Dataset", "metadata": {"name": name, "namespace": namespace}, "status": status}


def held(name: str, version: str = DIGESTS[0], state: str = "Ready", size: int = 1_000_000, **more: Any) -> Object:
    amounts = {"bytes": size, "bytesPresent": size, "allocated": {"bytes": size, "inodes": 11}}
    return {"namespace": "research", "name": name, "version": version, "state": state, **amounts, **more}


def cache(name: str, *versions: Object, free: int = 10**9, rates: Object | None = None) -> Object:
    status = {
        "capacity": {"bytes": 10**10, "inodes": 10**6},
        "free": {"bytes": free, "inodes": 10**6},
        "reserved": {},
        "rates": rates or {},
        "versions": list(versions),
    }
    return {"kind": "NodeDatasetCache", "metadata": {"name": name}, "status": status}


def pod(
    name: str, datasets: str = "", *, on: str = "", devices: Mapping[str, int] | None = None, **notes: str
) -> Object:
    annotations = {f"dsagent.io/{key.replace('_', '-')}": text for key, text in notes.items()}
    if datasets:
        annotations["dsagent.io/datasets"] = datasets
    limits = {"cpu": "2", "memory": "1Gi", **{resource: str(count) for resource, count in (devices or {}).items()}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "research", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"nodeName": on, "containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


def devices(name: str, *found: Object, policy: str = "") -> Object:
    """A node with two NUMA nodes of four CPUs each; the first is kubelet's own."""
    zones = [
        {"id": 0, "socket": 0, "cpus": "0-3", "freeCpus": "1-3", "cores": ["0", "1", "2", "3"]},
        {"id": 1, "socket": 1, "cpus": "4-7", "freeCpus": "4-7", "cores": ["4", "5", "6", "7"]},
    ]
    kubelet = {"topologyManager": policy, "cpuManager": "static", "reservedCpus": "0"}
    status = {"devices": list(found), "zones": zones, **({"kubelet": kubelet} if policy else {})}
    return {"kind": "NodeTopology", "metadata": {"name": name}, "status": status}


def some_pods() -> st.SearchStrategy[Object]:
    wishes = st.lists(st.sampled_from([*DATASETS, f"coco@{DIGESTS[1]}", "unknown"]), max_size=3).map(", ".join)
    counts = st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 4))
    return st.builds(
        lambda name, wish, on, count: pod(name, wish, on=on, devices=count),
        st.sampled_from([f"p{number}" for number in range(5)]),
        wishes,
        st.sampled_from(["", *NODES]),
        counts,
    )


def some_objects() -> st.SearchStrategy[Object]:
    """Objects of all kinds; the same names come often."""
    versions = st.builds(
        lambda name, version, state, size, used, space: held(
            name, version, state, size, inUse=used, namespace=space, bytesPresent=size // 2
        ),
        st.sampled_from(DATASETS),
        st.sampled_from(["", *DIGESTS]),
        st.sampled_from(["Ready", "Ready", "Caching", "Pending", "Failed"]),
        st.integers(0, 10**10),
        st.booleans(),
        st.sampled_from(NAMESPACES),
    )
    rates = st.dictionaries(st.sampled_from(["source", "network", "disk", "unpack"]), st.integers(0, 10**9))
    device = st.builds(
        lambda number, resource, healthy, allocated, scores: {
            "id": f"gpu{number}",
            "resource": resource,
            "healthy": healthy,
            "allocated": allocated,
            "numaNode": number % 3 - 1,
            "scores": {f"gpu{other}": score for other, score in enumerate(scores)},
        },
        st.integers(0, 9),
        st.sampled_from(CLASSES),
        st.booleans(),
        st.booleans(),
        st.lists(st.sampled_from([10, 40, 360]), min_size=10, max_size=10),
    )
    name = st.sampled_from(NODES)
    return st.one_of(
        name.map(node),
        some_pods(),
        st.builds(
            dataset,
            st.sampled_from(DATASETS),
            st.sampled_from(["", *DIGESTS]),
            st.integers(0, 10**10),
            st.sampled_from(NAMESPACES),
        ),
        st.builds(
            lambda where, versions, free, rates: cache(where, *versions, free=free, rates=rates),
            name,
            st.lists(versions, max_size=4),
            st.integers(0, 10**11),
            rates,
        ),
        st.builds(
            lambda where, policy, found: devices(where, *found, policy=policy),
            name,
            st.sampled_from(["", "none", "best-effort", "restricted", "single-numa-node"]),
            st.lists(device, max_size=10, unique_by=lambda one: one["id"]),
        ),
    )


KINDS: tuple[ObjectKind, ...] = ("Node", "Pod", "Dataset", "ClusterDataset", "NodeDatasetCache", "NodeTopology")
