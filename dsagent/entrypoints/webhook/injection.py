"""A pod and its datasets in, the pod that has them out. Pure, and the same for a pod that has been through it."""

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from dsagent.api.v1alpha1.references import Claim
from dsagent.contract import (
    ANNOTATION_ON_FAILURE,
    DATA_DIR,
    DATASETS_DIR,
    ENV_DATASET_PREFIX,
    INJECTED_DIR,
    INJECTED_PREFIX,
    LABEL_INJECTED,
)
from dsagent.entrypoints.webhook.parts import (
    Injection,
    Part,
    job_environment,
    job_mounts,
    pull_container,
    variable,
    volumes,
    wait_container,
)
from dsagent.entrypoints.webhook.wishes import Refusal, Wishes

Pod = Mapping[str, Any]

_OUR_PATHS = (DATASETS_DIR, INJECTED_DIR)
_SIGNS_OF_USE = (f"{DATASETS_DIR}/", DATA_DIR, ENV_DATASET_PREFIX)


def inject(pod: Pod, wishes: Wishes, claims: Sequence[Claim], injection: Injection) -> Pod:
    """The pod with its datasets. Raises Refusal if a source has to be mounted and the Dataset does not say how, and if
    the pod itself names what is ours otherwise than it comes out here.
    """
    _check_claims(wishes, claims)
    environment = job_environment(claims)
    spec = pod["spec"]
    early, late = _split(spec.get("initContainers") or [])
    bare = [_bare(container, environment) for container in (*late, *spec["containers"])]
    mounts = job_mounts(wishes, claims)
    given = [_with_data(container, environment, mounts) for container in bare]
    for container in early:
        _check_paths(container, container.get("volumeMounts") or [])
    pulls = _pulls([*late, *spec["containers"]], early) if wishes.mode == "cache" else []
    injected = {
        **spec,
        "volumes": [one for one in spec.get("volumes") or [] if not _is_ours(one)] + volumes(wishes, claims, injection),
        "initContainers": [*pulls, *early, wait_container(wishes, claims, injection), *given[: len(late)]],
        "containers": given[len(late) :],
    }
    _check_own(spec, injected)
    metadata = pod.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), LABEL_INJECTED: "true"}
    return {**pod, "metadata": {**metadata, "labels": labels}, "spec": injected}


def needs_host_path(pod: Pod) -> str | None:
    """The name of one of our volumes that is a path of the node, which PodSecurity's baseline forbids, or None."""
    return next((one["name"] for one in pod["spec"]["volumes"] if _is_ours(one) and "hostPath" in one), None)


def _check_claims(wishes: Wishes, claims: Sequence[Claim]) -> None:
    for claim in claims:
        if wishes.reads_source and claim.dataset.spec.mount is None:
            kind = claim.dataset.kind
            how = "dsagent.io/mode: local" if wishes.mode == "local" else f"{ANNOTATION_ON_FAILURE}: source"
            raise Refusal(
                f"{how} needs to mount the source of {claim.name}, and {kind} {claim.name} does not say how; "
                "give it spec.mount (nfs, persistentVolumeClaim or hostPath), or take the annotation away"
            )
    names: dict[str, str] = {}
    for claim in claims:
        other = names.setdefault(variable(claim.name), claim.name)
        if other != claim.name:
            raise Refusal(
                f"{other} and {claim.name} would both be {variable(claim.name)} in the environment; ask for one of them"
            )


def _split(init_containers: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """The pod's own init containers: those that start before the data are there, and the first one that uses the data
    with all after it.
    """
    own = [one for one in init_containers if not _is_ours(one)]
    first = next((place for place, one in enumerate(own) if _uses_data(one)), len(own))
    return own[:first], own[first:]


def _uses_data(container: Part) -> bool:
    """Whether it mounts one of our volumes, or its command, arguments or environment speak of the data."""
    if any(_is_ours(mount) for mount in container.get("volumeMounts") or []):
        return True
    told = [
        *(container.get("command") or []),
        *(container.get("args") or []),
        container.get("workingDir") or "",
        *(variable.get("value") or "" for variable in container.get("env") or []),
    ]
    return any(sign in text or text.endswith(DATASETS_DIR) for text in told for sign in _SIGNS_OF_USE)


def _bare(container: Part, environment: Sequence[Part]) -> Part:
    """A container of the pod's own without what we give it; raises Refusal for what is in the way of that."""
    ours = {one["name"]: one for one in environment}
    own = []
    for entry in container.get("env") or []:
        if entry["name"] not in ours:
            own.append(entry)
        elif not _is_within(ours[entry["name"]], entry):
            raise Refusal(f"container {container['name']} sets {entry['name']}, which is set for it; leave it out")
    mounts = [one for one in container.get("volumeMounts") or [] if not _is_ours(one)]
    _check_paths(container, mounts)
    return _with(container, env=own, volumeMounts=mounts)


def _check_paths(container: Part, mounts: Sequence[Part]) -> None:
    """Raises Refusal for a mount where the datasets go. Kubelet takes a relative path from the root."""
    for mount in mounts:
        path = posixpath.normpath("/" + mount["mountPath"].lstrip("/"))
        if any(path == ours or path.startswith(f"{ours}/") for ours in _OUR_PATHS):
            raise Refusal(
                f"container {container['name']} mounts {mount['name']} at {mount['mountPath']}, where the datasets go; "
                f"mount it elsewhere than in {' and '.join(_OUR_PATHS)}"
            )


def _with_data(container: Part, environment: Sequence[Part], mounts: Sequence[Part]) -> Part:
    """Ours come first in the environment: the container's own values may name them as $(NAME)."""
    return _with(
        container,
        env=[*environment, *(container.get("env") or [])],
        volumeMounts=[*(container.get("volumeMounts") or []), *mounts],
    )


def _with(container: Part, **lists: list[Part]) -> Part:
    """A container with these lists; an empty one is left out, as the API server does."""
    kept = {key: value for key, value in container.items() if key not in lists}
    return {**kept, **{key: value for key, value in lists.items() if value}}


def _pulls(users: Sequence[Part], early: Sequence[Part]) -> list[Part]:
    """One container for each image that kubelet would otherwise pull only after the data have come."""
    pulled = {one["image"] for one in early}
    images: dict[str, str | None] = {}
    for container in users:
        if container["image"] not in pulled:
            images.setdefault(container["image"], container.get("imagePullPolicy"))
    return [pull_container(place, image, policy) for place, (image, policy) in enumerate(images.items())]


def _check_own(spec: Pod, injected: Pod) -> None:
    """Raises Refusal if the pod itself names a volume, a container or a mount of ours that comes out otherwise."""
    for field, kind in (("volumes", "volume"), ("initContainers", "init container"), ("containers", "container")):
        made = {one["name"]: one for one in injected[field] if field != "containers"}  # none of those is ours
        for one in spec.get(field) or []:
            if _is_ours(one) and not (one["name"] in made and _is_within(made[one["name"]], one)):
                raise _named(kind, one["name"])
    made = {one["name"]: one for field in ("initContainers", "containers") for one in injected[field]}
    for container in (*(spec.get("initContainers") or []), *spec["containers"]):
        for mount in container.get("volumeMounts") or []:
            wanted = made[container["name"]].get("volumeMounts") or []
            if _is_ours(mount) and not any(_is_within(one, mount) for one in wanted):
                raise _named("mount", f"{mount['name']} at {mount['mountPath']} in {container['name']}")


def _named(kind: str, name: str) -> Refusal:
    return Refusal(
        f"the pod has a {kind} {name} of its own, which is not as it would be made for it; names that begin with "
        f"{INJECTED_PREFIX} are taken: leave it out, or give it another name"
    )


def _is_ours(named: Part) -> bool:
    return str(named["name"]).startswith(INJECTED_PREFIX)


def _is_within(part: object, whole: object) -> bool:
    """Whether `whole` says all that `part` says; other webhooks may have added to it: fields, and entries of lists."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(key in whole and _is_within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        if not all(isinstance(one, Mapping) for one in part):
            return part == whole
        return all(any(_is_within(one, other) for other in whole) for one in part)
    return json.dumps(part) == json.dumps(whole)
