"""Which pods there are, and when what they use is free again."""

from collections.abc import Mapping
from typing import Any

import pytest

from dsagent.core.bound_pods import BoundPod, MountedVersion, Traces, bound_pod, freed, mounted_version
from dsagent.core.datasets import DatasetKey

UID = "7e1b"
KUBELET = "/var/lib/kubelet"
POINT = f"{KUBELET}/pods/{UID}/volume-subpaths/dsagent-root/train/0"
DATA = "/versions/research/imagenet/0123456789abcdef/data"


def pod(**wait: str) -> dict[str, Any]:
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in wait.items()]
    env.append({"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})
    return {
        "metadata": {
            "uid": UID,
            "namespace": "research",
            "name": "train",
            "annotations": {"dsagent.io/datasets": "imagenet"},
        },
        "spec": {"initContainers": [{"name": "own"}, {"name": "dsagent-wait", "env": env}], "containers": []},
        "status": {"phase": "Pending"},
    }


def test_a_pod_says_what_its_init_client_asks_for() -> None:
    found = bound_pod(pod(DSAGENT_DATASETS='[{"name": "a$$b"}]', DSAGENT_ON_FAILURE="source", DSAGENT_MODE="cache"))
    assert found == BoundPod(UID, "research", "train", False, True, True, '[{"name": "a$b"}]', reads_source=True)


def test_a_pod_in_local_mode_asks_no_agent() -> None:
    assert bound_pod(pod(DSAGENT_DATASETS="[]", DSAGENT_MODE="local")).datasets == ""


def test_a_pod_that_was_not_injected() -> None:
    plain = pod()
    del plain["spec"]["initContainers"], plain["status"]
    found = bound_pod(plain)
    assert (found.asks, found.injected, found.datasets, found.over) == (True, False, "", False)


@pytest.mark.parametrize(
    ("phase", "over"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_is_over_when_none_of_its_containers_will_run(phase: str, over: bool) -> None:
    assert bound_pod({**pod(), "status": {"phase": phase}}).over == over


@pytest.mark.parametrize(
    ("point", "source", "found"),
    [
        (POINT, DATA, True),
        (POINT, f"/var/lib/dsagent{DATA}", True),  # the root is no filesystem of its own
        (POINT.replace("subpaths", "subpath"), DATA, False),
        (POINT, "/empty", False),  # a pod that did not wait
        (POINT, "/trash/0123456789abcdef.fedc/data", False),
        (f"/else{POINT}", DATA, False),
        (KUBELET, DATA, False),
    ],
)
def test_mounts_of_versions_are_known_by_where_kubelet_makes_them(point: str, source: str, found: bool) -> None:
    expected = MountedVersion(UID, DatasetKey("research", "imagenet"), "0123456789abcdef") if found else None
    assert mounted_version(KUBELET, point, source) == expected
    assert mounted_version(f"{KUBELET}/", point, source) == expected


def known(over: bool) -> dict[str, BoundPod]:
    return {UID: BoundPod(UID, "research", "train", over, True, True, "[]", False)}


@pytest.mark.parametrize(
    ("pods", "mounted", "kept", "free"),
    [
        (known(over=False), False, True, False),  # it waits for its data, or kubelet is about to mount them
        (known(over=False), True, True, False),  # it runs
        (known(over=True), False, True, True),  # it is over
        (known(over=True), True, True, False),  # it is said to be over and a container still runs
        ({}, False, False, True),  # it is gone
        ({}, True, True, False),  # deleted by force, and still runs
        ({}, False, True, False),  # deleted by force; a container that mounts the whole root may still run
        ({}, True, False, False),  # whatever that means
    ],
)
def test_a_pod_holds_what_it_uses_until_it_has_gone_for_good(
    pods: Mapping[str, BoundPod], mounted: bool, kept: bool, free: bool
) -> None:
    traces = Traces(frozenset({UID} if mounted else ()), frozenset({UID} if kept else ()))
    assert freed({UID}, pods, traces) == ({UID} if free else set())
    assert freed(set(), pods, traces) == set()
