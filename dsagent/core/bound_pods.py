"""Pods as the agent of their node sees them, and when what they use is free again. Rules only."""

from collections.abc import Collection, Mapping, Set
from typing import Any, NamedTuple

from dsagent.contract import (
    ANNOTATION_DATASETS,
    ENV_DATASETS,
    ENV_MODE,
    ENV_ON_FAILURE,
    PODS_IN_ROOT,
    WAIT_CONTAINER,
)
from dsagent.core.cluster import Object, metadata
from dsagent.core.datasets import DatasetKey

SUBPATHS = "volume-subpaths"


class BoundPod(NamedTuple):
    """A pod of this node. `over`: none of its containers runs or will; `asks`: it has our annotation; `injected`: the
    webhook has been at it. `datasets` is what its init client is told to ask for, empty if it asks no agent;
    `reads_source`: it goes on without the cache.
    """

    uid: str
    namespace: str
    name: str
    over: bool
    asks: bool
    injected: bool
    datasets: str
    reads_source: bool


def bound_pod(found: Object) -> BoundPod:
    """A pod as the API has it; raises KeyError for what is none."""
    names = metadata(found)
    init = found["spec"].get("initContainers") or ()
    wait = next((one for one in init if one["name"] == WAIT_CONTAINER), None)
    told = {one["name"]: one.get("value", "") for one in (wait or {}).get("env") or ()}
    # Kubelet makes one of two dollar signs.
    datasets = "" if told.get(ENV_MODE) == "local" else told.get(ENV_DATASETS, "").replace("$$", "$")
    return BoundPod(
        uid=names["uid"],
        namespace=names["namespace"],
        name=names["name"],
        over=(found.get("status") or {}).get("phase") in ("Succeeded", "Failed"),
        asks=ANNOTATION_DATASETS in (names.get("annotations") or {}),
        injected=wait is not None,
        datasets=datasets,
        reads_source=told.get(ENV_ON_FAILURE) == "source",
    )


class MountedVersion(NamedTuple):
    """A bind mount of a version's data that kubelet has made for a container of a pod."""

    pod: str
    dataset: DatasetKey
    version_id: str


class Traces(NamedTuple):
    """What kubelet has on the host, by pods' UIDs: mounts of versions, and folders of its own."""

    mounted: Set[str]
    kept: Set[str]


NO_TRACES = Traces(frozenset(), frozenset())


def mounted_version(kubelet_root: str, point: str, source: str) -> MountedVersion | None:
    """What a line of mountinfo says if it is such a mount: `point` is where it is mounted, `source` the path in its
    filesystem. Kubelet makes them at `pods/UID/volume-subpaths/VOLUME/CONTAINER/NUMBER`.
    """
    prefix = f"{kubelet_root.rstrip('/')}/{PODS_IN_ROOT}/"
    pod, _, rest = point.removeprefix(prefix).partition("/")
    if not point.startswith(prefix) or not rest.startswith(f"{SUBPATHS}/"):
        return None
    match source.split("/")[-5:]:
        case ["versions", namespace, name, version_id, "data"]:
            return MountedVersion(pod, DatasetKey(namespace, name), version_id)
    return None


def freed(held: Collection[str], pods: Mapping[str, BoundPod], traces: Traces) -> set[str]:
    """Of the UIDs that hold something those that do no more: of pods that are over and have nothing mounted, and of
    pods that are gone from the API and of which kubelet has nothing left. A pod deleted by force may still run.

    Right only if `pods` is what there was at a moment after all of `held` began to hold it, and `traces` was seen after
    that.
    """
    return {uid for uid in held if uid not in traces.mounted and _is_over(pods.get(uid), uid in traces.kept)}


def _is_over(pod: BoundPod | None, kept: bool) -> bool:
    return not kept if pod is None else pod.over


def pods_by_uid(found: Collection[Any]) -> dict[str, BoundPod]:
    """Pods by their UIDs."""
    return {pod.uid: pod for pod in found}
