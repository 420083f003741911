"""What a pod's annotation means."""

import pytest

from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset
from dsagent.api.v1alpha1.references import BadReference, parse_references, resolve

VERSION = "xxh3:" + "0123456789abcdef" * 2


def dataset(name: str) -> Dataset:
    return Dataset.model_validate(
        {"metadata": {"name": name, "namespace": "research"}, "spec": {"source": f"s3://bucket/{name}"}}
    )


def cluster_dataset(name: str, allowed: object = None) -> ClusterDataset:
    spec = {"source": f"/mnt/{name}"} | ({} if allowed is None else {"allowedNamespaces": allowed})
    return ClusterDataset.model_validate({"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("annotation", "references"),
    [
        ("imagenet", [("imagenet", None)]),
        (" imagenet , coco,", [("imagenet", None), ("coco", None)]),
        (f"coco@{VERSION}", [("coco", VERSION)]),
        ("a.b_c-1", [("a.b_c-1", None)]),
    ],
)
def test_names_and_versions_are_read(annotation: str, references: list[tuple[str, str | None]]) -> None:
    assert [(one.name, one.version) for one in parse_references(annotation)] == references


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ("", "names no dataset"),
        (" , ", "names no dataset"),
        ("Imagenet", "'Imagenet', which names no dataset"),
        ("image net", "'image net', which names no dataset"),
        ("imagenet\n", None),
        ("-x", "names no dataset"),
        ("x" * 64, "names no dataset"),
        ("coco@", "a version is written xxh3:"),
        ("coco@xxh3:12", "a version is written xxh3:"),
        ("other/coco", "names no dataset"),
        ("coco, imagenet, coco", "names coco twice"),
        (f"coco, coco@{VERSION}", "names coco twice"),
        (",".join(f"d{n}" for n in range(65)), "names 65 datasets"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(annotation: str, why: str | None) -> None:
    if why is None:
        assert parse_references(annotation)
        return
    with pytest.raises(BadReference, match=why):
        parse_references(annotation)


def resolved(annotation: str, *cluster: ClusterDataset, own: tuple[str, ...] = (), team: str = "vision") -> list[str]:
    claims = resolve(
        parse_references(annotation),
        "research",
        {"team": team},
        {name: dataset(name) for name in own},
        {one.metadata.name: one for one in cluster},
    )
    return [f"{claim.dataset.cache_namespace}/{claim.name}" for claim in claims]


def test_a_namespace_own_dataset_comes_before_the_clusters() -> None:
    assert resolved("coco", cluster_dataset("coco", {}), own=("coco",)) == ["research/coco"]
    assert resolved("coco", cluster_dataset("coco", {})) == ["_cluster/coco"]


@pytest.mark.parametrize(
    ("selector", "team", "allowed"),
    [
        (None, "vision", False),
        ({}, "vision", True),
        ({"matchLabels": {"team": "vision"}}, "vision", True),
        ({"matchLabels": {"team": "vision"}}, "audio", False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["vision", "audio"]}]}, "audio", True),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["vision"]}]}, "vision", False),
        ({"matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["prod"]}]}, "vision", True),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, "vision", True),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, "vision", False),
    ],
)
def test_a_cluster_dataset_is_for_the_namespaces_it_names(selector: object, team: str, *, allowed: bool) -> None:
    if allowed:
        assert resolved("coco", cluster_dataset("coco", selector), team=team) == ["_cluster/coco"]
        return
    with pytest.raises(BadReference, match="ClusterDataset coco is not allowed to namespace research"):
        resolved("coco", cluster_dataset("coco", selector), team=team)


@pytest.mark.parametrize(
    ("asked", "own", "said"),
    [
        ("imagnet", ("imagenet", "coco"), "no Dataset imagnet in namespace research.*did you mean imagenet"),
        ("zzz", ("imagenet", "coco"), "there is coco, imagenet"),
        ("zzz", (), "kubectl get dset,cdset"),
    ],
)
def test_an_unknown_dataset_is_refused_with_the_near_names(asked: str, own: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadReference, match=said):
        resolved(asked, own=own)


def test_names_of_forbidden_cluster_datasets_are_not_suggested() -> None:
    with pytest.raises(BadReference) as caught:
        resolved("secrett", cluster_dataset("secret"))
    assert "did you mean" not in str(caught.value)
