"""What namespaces keep apart: datasets of one name, versions by their digest, ClusterDatasets that are not for all."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kube import Namespace, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, cluster_dataset, dataset, make_files
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster, ClusterError


def reads(name: str, datasets: str = "words") -> dict[str, object]:
    return annotated(pod(name, "sh", "-c", "cat /datasets/*/*", nodeName="node1"), datasets)


def test_two_datasets_of_one_name_and_equal_listings_are_two(
    namespace: Namespace, other_namespace: Namespace, sources: Path, cluster: Cluster
) -> None:
    for place, letter in ((namespace, "a"), (other_namespace, "b")):
        source = make_files(sources / letter, count=1, size=3, content=letter)
        os.utime(source / "file00000", (1e9, 1e9))
        place.apply(dataset("words", source), reads("reads"))
        assert phase(place.wait_for_end("reads")) == "Succeeded"
        assert place.logs("reads", "main") == 3 * letter

    cached = NodeInside(cluster, 1).cached()
    theirs = cached[f"{other_namespace.name}/words"]["version"]
    assert theirs != cached[f"{namespace.name}/words"]["version"]
    namespace.apply(reads("pins", f"words@{theirs}"))
    refused = namespace.wait_for_end("pins")
    assert phase(refused) == "Failed"
    assert "bbb" not in namespace.run("logs", "pins", "--all-containers", "--ignore-errors")


@pytest.fixture
def shared(cluster: Cluster, sources: Path, namespace: Namespace) -> Iterator[str]:
    """A ClusterDataset for the namespaces with a label."""
    source = make_files(sources / "shared", count=1, size=3)
    allowed = {"matchLabels": {"data": namespace.name}}
    name = f"shared-{namespace.name[-4:]}"
    namespace.apply(cluster_dataset(name, source, allowedNamespaces=allowed))
    yield name
    kubectl(cluster, "delete", "clusterdataset", name)


def test_a_cluster_dataset_is_for_the_namespaces_it_names(cluster: Cluster, namespace: Namespace, shared: str) -> None:
    with pytest.raises(ClusterError, match=shared):
        namespace.apply(reads("reads", shared))
    kubectl(cluster, "label", "namespace", namespace.name, f"data={namespace.name}")
    namespace.apply(reads("reads", shared))
    assert phase(namespace.wait_for_end("reads")) == "Succeeded"
    assert namespace.logs("reads", "main") == "aaa"
