"""What is put into a pod: volumes, mounts, environment and init containers, as Kubernetes writes them.

Every field that the API server would fill in is given, so that a pod that has been through it compares equal.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsagent.api.v1alpha1.dataset import Dataset
from dsagent.api.v1alpha1.references import Claim
from dsagent.contract import (
    DATA_DIR,
    DATASETS_DIR,
    ENV_AGENT,
    ENV_DATA_DIR,
    ENV_DATASET_PREFIX,
    ENV_DATASETS,
    ENV_DATASETS_DIR,
    ENV_MODE,
    ENV_ON_FAILURE,
    ENV_POD_NAME,
    ENV_POD_NAMESPACE,
    ENV_POD_UID,
    ENV_ROOT,
    ENV_SOURCE_DIR,
    ENV_TIMEOUT,
    ENV_TOKEN_FILE,
    INJECTED_DIR,
    NO_OP_IN_ROOT,
    PODS_IN_ROOT,
    PULL_CONTAINER_PREFIX,
    ROOT_DIR,
    SOCKET_IN_ROOT,
    SOURCE_DIR,
    TOKEN_AUDIENCE,
    TOKEN_DIR,
    VOLUME_DATASETS,
    VOLUME_NO_OP,
    VOLUME_ROOT,
    VOLUME_SOCKET,
    VOLUME_SOURCE_PREFIX,
    VOLUME_TOKEN,
    WAIT_CONTAINER,
)
from dsagent.entrypoints.webhook.wishes import Wishes

Part = dict[str, Any]
"""A volume, a mount, a variable or a container."""

NOBODY = 65534
TOKEN_SECONDS = 3600
_NO_OP = f"{INJECTED_DIR}/noop"
# Requests equal to limits: the pod keeps its QoS class, and with Guaranteed its exclusive CPUs.
_WAIT_RESOURCES = {"cpu": "100m", "memory": "64Mi"}
_PULL_RESOURCES = {"cpu": "100m", "memory": "16Mi"}


@dataclass(frozen=True)
class Injection:
    """What the cluster's administrator decided. `host_path`: the cache's root on every node; `image`: of the init
    client, `pull_policy` how kubelet gets it; `timeout`: how long a pod waits if it does not say.
    """

    host_path: str
    image: str
    pull_policy: str
    timeout: str


def volumes(wishes: Wishes, claims: Sequence[Claim], injection: Injection) -> list[Part]:
    """The pod's volumes. Kubelet waits for the agent's socket and no-op: their types say that they must be there."""
    found: list[Part] = [{"name": VOLUME_DATASETS, "emptyDir": {}}]
    if wishes.mode == "cache":
        token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
        found += [
            _host_path(VOLUME_ROOT, injection.host_path, "Directory"),
            _host_path(VOLUME_SOCKET, f"{injection.host_path}/{SOCKET_IN_ROOT}", "Socket"),
            _host_path(VOLUME_NO_OP, f"{injection.host_path}/{NO_OP_IN_ROOT}", "File"),
            {"name": VOLUME_TOKEN, "projected": {"defaultMode": 0o644, "sources": [{"serviceAccountToken": token}]}},
        ]
    if wishes.reads_source:
        found += [_source_volume(place, claim) for place, claim in enumerate(claims)]
    return found


def job_mounts(wishes: Wishes, claims: Sequence[Claim]) -> list[Part]:
    """What every container of the job sees. Kubelet resolves a subPathExpr when it makes the container: after
    dsagent-wait.
    """
    found: list[Part] = [_mount(VOLUME_DATASETS, DATASETS_DIR)]
    if wishes.mode == "cache":
        below = f"{PODS_IN_ROOT}/$({ENV_POD_UID})"
        found += [
            {**_mount(VOLUME_ROOT, f"{DATA_DIR}/{claim.name}"), "subPathExpr": f"{below}/{claim.name}"}
            for claim in claims
        ]
    return found + (_source_mounts(claims) if wishes.reads_source else [])


def job_environment(claims: Sequence[Claim]) -> list[Part]:
    """The variables of every container of the job."""
    paths = [{"name": variable(claim.name), "value": f"{DATASETS_DIR}/{claim.name}"} for claim in claims]
    return [_field(ENV_POD_UID, "metadata.uid"), *paths]


def variable(dataset: str) -> str:
    """The variable that holds a dataset's path, as `dsctl run` names it."""
    return ENV_DATASET_PREFIX + dataset.upper().replace(".", "_").replace("-", "_")


def wait_container(wishes: Wishes, claims: Sequence[Claim], injection: Injection) -> Part:
    """dsagent-wait: asks the agent, waits, and links what has come; in local mode it links the sources."""
    mounts: list[Part] = [{"name": VOLUME_DATASETS, "mountPath": DATASETS_DIR}]
    if wishes.mode == "cache":
        mounts += [
            _mount(VOLUME_ROOT, ROOT_DIR),
            # Only waited for: a new agent makes a new socket, which is seen below the root.
            _mount(VOLUME_SOCKET, f"{INJECTED_DIR}/agent.sock"),
            _mount(VOLUME_TOKEN, TOKEN_DIR),
        ]
    if wishes.reads_source:
        mounts += _source_mounts(claims)
    secrets = [
        {"prefix": _prefix(place), "secretRef": {"name": claim.dataset.spec.secret_ref.name}}
        for place, claim in enumerate(claims)
        if isinstance(claim.dataset, Dataset) and claim.dataset.spec.secret_ref and wishes.mode == "cache"
    ]
    return {
        "name": WAIT_CONTAINER,
        "image": injection.image,
        "imagePullPolicy": injection.pull_policy,
        "args": ["run"],
        "env": _wait_environment(wishes, claims, injection),
        **({"envFrom": secrets} if secrets else {}),
        "resources": {"requests": _WAIT_RESOURCES, "limits": _WAIT_RESOURCES},
        "securityContext": _confined(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def pull_container(place: int, image: str, pull_policy: str | None) -> Part:
    """Does nothing in an image of the pod's, so that kubelet pulls it while the data come."""
    return {
        "name": f"{PULL_CONTAINER_PREFIX}{place}",
        "image": image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": [_NO_OP],
        "resources": {"requests": _PULL_RESOURCES, "limits": _PULL_RESOURCES},
        "securityContext": _confined() | {"runAsNonRoot": True, "runAsUser": NOBODY},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [_mount(VOLUME_NO_OP, _NO_OP)],
    }


def _wait_environment(wishes: Wishes, claims: Sequence[Claim], injection: Injection) -> list[Part]:
    found = {
        # Kubelet would put a variable's value where $(NAME) stands.
        ENV_DATASETS: json.dumps([_wanted(place, claim) for place, claim in enumerate(claims)]).replace("$", "$$"),
        ENV_DATASETS_DIR: DATASETS_DIR,
        ENV_MODE: wishes.mode,
    }
    if wishes.mode == "cache":
        found |= {
            ENV_AGENT: f"unix://{ROOT_DIR}/{SOCKET_IN_ROOT}",
            ENV_DATA_DIR: DATA_DIR,
            ENV_ON_FAILURE: wishes.on_failure,
            ENV_ROOT: ROOT_DIR,
            ENV_TIMEOUT: wishes.timeout or injection.timeout,
            ENV_TOKEN_FILE: f"{TOKEN_DIR}/token",
        }
    if wishes.reads_source:
        found[ENV_SOURCE_DIR] = SOURCE_DIR
    return [
        _field(ENV_POD_UID, "metadata.uid"),
        _field(ENV_POD_NAME, "metadata.name"),
        _field(ENV_POD_NAMESPACE, "metadata.namespace"),
        *({"name": name, "value": value} for name, value in found.items()),
    ]


def _wanted(place: int, claim: Claim) -> Part:
    """A dataset as the init client reads it."""
    spec = claim.dataset.spec
    options: Part = {"check": spec.check}
    if spec.pack_to:
        options["pack_to"] = spec.pack_to
    if spec.options and spec.options.replace_source:
        options["replace_source"] = True
    if spec.options and spec.options.skip_special:
        options["skip_special"] = True
    if spec.options and spec.options.storage:
        options["storage"] = dict(spec.options.storage)
    found: Part = {"name": claim.name, "source": spec.source, "options": options}
    if claim.version:
        found["version"] = claim.version
    if not isinstance(claim.dataset, Dataset):
        found["cluster"] = True
    elif claim.dataset.spec.secret_ref:
        found["environ"] = _prefix(place)
    return found


def _prefix(place: int) -> str:
    """Of the variables that come from a dataset's Secret."""
    return f"DSAGENT_SECRET_{place}_"


def _source_volume(place: int, claim: Claim) -> Part:
    mount = claim.dataset.spec.mount
    name = f"{VOLUME_SOURCE_PREFIX}{place}"
    if mount is None:
        raise ValueError(claim.name)
    if mount.nfs:
        return {"name": name, "nfs": {"server": mount.nfs.server, "path": mount.nfs.path, "readOnly": True}}
    if mount.host_path:
        return _host_path(name, mount.host_path.path, "Directory")
    found: Mapping[str, Any] = mount.document()["persistentVolumeClaim"]
    return {"name": name, "persistentVolumeClaim": {**found, "readOnly": True}}


def _source_mounts(claims: Sequence[Claim]) -> list[Part]:
    return [
        _mount(f"{VOLUME_SOURCE_PREFIX}{place}", f"{SOURCE_DIR}/{claim.name}") for place, claim in enumerate(claims)
    ]


def _host_path(name: str, path: str, kind: str) -> Part:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def _mount(volume: str, path: str) -> Part:
    return {"name": volume, "mountPath": path, "readOnly": True}


def _field(name: str, path: str) -> Part:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _confined() -> Part:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
