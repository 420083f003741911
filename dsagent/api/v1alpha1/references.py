"""What a pod asks for by its annotation, and which objects that means: one answer for webhook, agent and scheduler.

Pure: who calls it has read the namespace and its Datasets.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsagent.api.v1alpha1.dataset import NAME_PATTERN, ClusterDataset, Dataset
from dsagent.contract import ANNOTATION_DATASETS

MAX_DATASETS = 64
_NAME = re.compile(NAME_PATTERN.removesuffix("$") + r"\Z")
_VERSION = re.compile(r"xxh3:[0-9a-f]{32}\Z")


class BadReference(ValueError):
    """What a pod asks for cannot be meant, or is not there for it; its text is for the pod's author."""


@dataclass(frozen=True)
class Reference:
    """One dataset by its name, and the version if it was pinned."""

    name: str
    version: str | None

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


@dataclass(frozen=True)
class Claim:
    """A dataset that a pod may have: the object it is, and the version if it was pinned."""

    dataset: Dataset | ClusterDataset
    version: str | None

    @property
    def name(self) -> str:
        """What the pod calls it: its folder below /datasets."""
        return self.dataset.metadata.name


def parse_references(annotation: str) -> tuple[Reference, ...]:
    """The datasets of `imagenet, coco@xxh3:…`, in their order; raises BadReference."""
    found = tuple(_reference(part.strip()) for part in annotation.split(",") if part.strip())
    if not found:
        raise BadReference(f"{ANNOTATION_DATASETS} names no dataset; write for example imagenet, coco")
    if len(found) > MAX_DATASETS:
        raise BadReference(f"{ANNOTATION_DATASETS} names {len(found)} datasets; a pod may have {MAX_DATASETS}")
    names = [one.name for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadReference(f"{ANNOTATION_DATASETS} names {', '.join(twice)} twice; one version of a dataset is enough")
    return found


def resolve(
    references: Sequence[Reference],
    namespace: str,
    namespace_labels: Mapping[str, str],
    datasets: Mapping[str, Dataset],
    cluster_datasets: Mapping[str, ClusterDataset],
) -> tuple[Claim, ...]:
    """What each reference of a pod in `namespace` means; raises BadReference for one that is not there for it.

    `datasets` are those of the namespace by name, and come first; `cluster_datasets` all that there are.
    """
    allowed = {name: dataset for name, dataset in cluster_datasets.items() if is_allowed(dataset, namespace_labels)}
    known: dict[str, Dataset | ClusterDataset] = {**allowed, **datasets}
    claims = []
    for reference in references:
        if (dataset := known.get(reference.name)) is None:
            refused = reference.name in cluster_datasets
            raise BadReference(_unknown(reference.name, namespace, sorted(known), refused=refused))
        claims.append(Claim(dataset, reference.version))
    return tuple(claims)


def is_allowed(dataset: ClusterDataset, namespace_labels: Mapping[str, str]) -> bool:
    """Whether pods of a namespace with these labels may use it."""
    selector = dataset.spec.allowed_namespaces
    return selector is not None and selector.matches(namespace_labels)


def _reference(text: str) -> Reference:
    name, at, version = text.partition("@")
    if not _NAME.match(name):
        raise BadReference(
            f"{ANNOTATION_DATASETS} has {text!r}, which names no dataset: a name is 1 to 63 of a-z, 0-9, '.', '_' and "
            "'-', with a letter or digit at both ends; names are separated by commas"
        )
    if at and not _VERSION.match(version):
        raise BadReference(f"{ANNOTATION_DATASETS} has {text!r}: a version is written xxh3: and 32 hexadecimal digits")
    return Reference(name, version or None)


def _unknown(name: str, namespace: str, known: Sequence[str], *, refused: bool) -> str:
    if refused:
        return (
            f"the ClusterDataset {name} is not allowed to namespace {namespace}: its spec.allowedNamespaces does not "
            f"match the namespace's labels; ask an administrator, or make a Dataset {name} of your own"
        )
    text = f"there is no Dataset {name} in namespace {namespace}, and no ClusterDataset that it may use"
    if near := difflib.get_close_matches(name, known, n=3, cutoff=0.6):
        return f"{text}; did you mean {' or '.join(near)}?"
    return (
        f"{text}; there is {', '.join(known[:10])}" if known else f"{text}; kubectl get dset,cdset shows what there is"
    )
