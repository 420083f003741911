"""dsctl in a cluster: what all nodes have, Datasets by name, and the same as a plugin of kubectl."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dsagent import __version__
from dsagent.adapters.kubernetes.agents import find_dataset
from dsagent.contract import CLUSTER_NAMESPACE, ExitCode
from dsagent.core.cluster import CLUSTER_DATASETS, NODE_DATASET_CACHES, Object, metadata
from dsagent.core.ports import Location
from dsagent.core.quantities import human_count, human_size
from dsagent.entrypoints.dsctl.render import View, short, table
from dsagent.service.origins import CacheRequest
from dsagent.wiring import open_cluster


class NodeVersion(NamedTuple):
    """A version on a node, whole or on its way, as its NodeDatasetCache says."""

    node: str
    dataset: str
    version: str
    state: str
    files: int
    bytes: int
    bytes_present: int
    leases: int


def list_nodes() -> View:
    """What the nodes have, by node and dataset; raises UsageError, ClusterUnreachable, NotPermitted."""
    found = [version for cache in open_cluster("dsctl").listing(NODE_DATASET_CACHES).items for version in _of(cache)]
    return View(
        [one._asdict() for one in found],
        lambda wide: _table(found, wide),
        [f"{one.node}/{one.dataset}@{one.version}" for one in found],
    )


def _of(cache: Object) -> list[NodeVersion]:
    status: Mapping[str, Any] = cache.get("status") or {}
    return [
        NodeVersion(
            metadata(cache)["name"],
            f"{one['namespace']}/{one['name']}",
            one.get("version", ""),
            one["state"],
            one.get("files", 0),
            one.get("bytes", 0),
            one.get("bytesPresent", 0),
            one.get("leases", 0),
        )
        for one in status.get("versions") or ()
    ]


def _table(found: Sequence[NodeVersion], wide: bool) -> list[str]:
    rows = [
        [
            one.node,
            one.dataset,
            one.version if wide else short(one.version),
            one.state if one.state != "Caching" or not one.bytes else f"{100 * one.bytes_present // one.bytes} %",
            human_count(one.files),
            human_size(one.bytes),
            str(one.leases),
        ]
        for one in found
    ]
    return table(["NODE", "DATASET", "VERSION", "STATE", "FILES", "SIZE", "LEASES"], rows)


def request_of(name: str, version: str | None) -> CacheRequest:
    """What a Dataset asks for, of the namespace that the kubeconfig is in, or else a ClusterDataset. Its credentials
    are the agent's business. Raises UsageError.
    """
    cluster = open_cluster("dsctl")
    found = find_dataset(cluster, name, cluster.server.namespace)
    spec = found["spec"]
    options = spec.get("options") or {}
    shared = found["kind"] == CLUSTER_DATASETS.kind
    pack_to = spec.get("packTo")
    storage = tuple(sorted((options.get("storage") or {}).items()))
    return CacheRequest(
        Location(spec["source"], storage),
        name,
        version,
        check=spec.get("check", "fingerprint"),
        replace_source=options.get("replaceSource", False),
        pack_to=Location(pack_to, storage) if pack_to else None,
        skip_special=options.get("skipSpecial", False),
        namespace=CLUSTER_NAMESPACE if shared else cluster.server.namespace,
    )


def kubectl_dataset() -> int:
    """`kubectl dataset …`: dsctl, which lists what all nodes have unless one is named."""
    from dsagent.entrypoints.dsctl import main  # noqa: PLC0415 - it imports what this module is imported by

    words = sys.argv[1:]
    if words == ["--version"]:
        sys.stdout.write(f"kubectl-dataset {__version__}\n")
        return ExitCode.OK
    if words[:1] in ([], ["ls"]) and not any(word.partition("=")[0] in ("--node", "--all-nodes") for word in words):
        sys.argv[1:2] = ["ls", "--all-nodes"]
    return main()
