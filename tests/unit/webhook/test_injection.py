"""Pods before and after the webhook."""

import copy
import json
from typing import Any

import pytest

from dsagent.api.v1alpha1.dataset import ClusterDataset, Dataset
from dsagent.api.v1alpha1.references import Claim
from dsagent.entrypoints.init.settings import load_settings
from dsagent.entrypoints.webhook.injection import inject, needs_host_path
from dsagent.entrypoints.webhook.parts import Injection
from dsagent.entrypoints.webhook.wishes import Refusal, parse_wishes

INJECTION = Injection("/var/lib/dsagent", "registry.example/dsagent/init:1", "IfNotPresent", "2h")
VERSION = "xxh3:" + "0123456789abcdef" * 2
NFS = {"nfs": {"server": "nfs.example", "path": "/export"}}
OURS = {"readOnly": True, "name": "dsagent-datasets", "mountPath": "/datasets"}

Pod = dict[str, Any]


def container(name: str = "train", image: str = "train:1", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", **fields}


def pod(*init: dict[str, Any], containers: list[dict[str, Any]] | None = None, **annotations: str) -> Pod:
    said = {"dsagent.io/datasets": "coco"} | {
        f"dsagent.io/{key.replace('_', '-')}": v for key, v in annotations.items()
    }
    spec: Pod = {"containers": containers or [container()], "volumes": [{"name": "work", "emptyDir": {}}]}
    return {
        "metadata": {"name": "p", "annotations": said},
        "spec": spec | ({"initContainers": list(init)} if init else {}),
    }


def claim(reference: str, **spec: Any) -> Claim:
    name, _, version = reference.partition("@")
    found = Dataset.model_validate(
        {"metadata": {"name": name, "namespace": "research"}, "spec": {"source": f"s3://bucket/{name}", **spec}}
    )
    return Claim(found, version or None)


def injected(before: Pod, *claims: Claim, **spec: Any) -> Any:
    """The pod afterwards; each time it is seen that a second pass changes nothing, and that the first left it alone."""
    kept = copy.deepcopy(before)
    wishes = parse_wishes(before["metadata"]["annotations"])
    assert wishes
    found = claims or tuple(claim(str(one), **spec) for one in wishes.references)
    after = inject(before, wishes, found, INJECTION)
    assert before == kept
    assert inject(after, wishes, found, INJECTION) == after
    return json.loads(json.dumps(after))


def names(containers: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in containers]


def wait_of(after: Pod) -> dict[str, Any]:
    (found,) = [one for one in after["spec"]["initContainers"] if one["name"] == "dsagent-wait"]
    return dict(found)


def test_a_plain_pod() -> None:
    after = injected(pod())
    assert after["metadata"]["labels"] == {"dsagent.io/injected": "true"}
    assert names(after["spec"]["initContainers"]) == ["dsagent-pull-0", "dsagent-wait"]
    (train,) = after["spec"]["containers"]
    assert train["env"] == [
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}},
        {"name": "DSAGENT_DATASET_COCO", "value": "/datasets/coco"},
    ]
    assert train["volumeMounts"] == [
        OURS,
        {
            "name": "dsagent-root",
            "mountPath": "/run/dsagent/data/coco",
            "readOnly": True,
            "subPathExpr": "pods/$(POD_UID)/coco",
        },
    ]
    volumes = {one.pop("name"): one for one in after["spec"]["volumes"]}
    assert volumes == {
        "work": {"emptyDir": {}},
        "dsagent-datasets": {"emptyDir": {}},
        "dsagent-root": {"hostPath": {"path": "/var/lib/dsagent", "type": "Directory"}},
        "dsagent-socket": {"hostPath": {"path": "/var/lib/dsagent/run/agent.sock", "type": "Socket"}},
        "dsagent-no-op": {"hostPath": {"path": "/var/lib/dsagent/bin/noop", "type": "File"}},
        "dsagent-token": {
            "projected": {
                "defaultMode": 0o644,
                "sources": [
                    {"serviceAccountToken": {"audience": "dsagent", "expirationSeconds": 3600, "path": "token"}}
                ],
            }
        },
    }
    assert needs_host_path(injected(pod())) == "dsagent-root"


@pytest.mark.parametrize(
    ("before", "order"),
    [
        (
            {
                "metadata": {
                    "generateName": "train-",
                    "labels": {"batch.kubernetes.io/job-name": "train"},
                    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1"}],
                },
                "spec": {"restartPolicy": "Never", "containers": [container()]},
            },
            ["dsagent-pull-0", "dsagent-wait"],
        ),
        (
            {
                "metadata": {
                    "name": "bert-worker-1",
                    "labels": {
                        "training.kubeflow.org/job-name": "bert",
                        "training.kubeflow.org/replica-type": "worker",
                    },
                },
                "spec": {
                    "initContainers": [
                        container("init-pytorch", "alpine:3.10", command=["sh", "-c", "nslookup bert-0"])
                    ],
                    "containers": [
                        container(
                            "pytorch",
                            "torch:2",
                            env=[{"name": "MASTER_ADDR", "value": "bert-master-0"}, {"name": "RANK", "value": "2"}],
                            args=["--data", "$(DSAGENT_DATASET_COCO)"],
                            resources={"limits": {"nvidia.com/gpu": "8"}},
                            volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],
                        )
                    ],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                },
            },
            ["dsagent-pull-0", "init-pytorch", "dsagent-wait"],
        ),
    ],
    ids=["Job", "PyTorchJob"],
)
def test_pods_that_others_make_keep_all_they_had(before: Pod, order: list[str]) -> None:
    before["metadata"]["annotations"] = {"dsagent.io/datasets": "coco"}
    after = injected(before)
    assert names(after["spec"]["initContainers"]) == order
    assert before["metadata"].get("labels", {}).items() <= after["metadata"]["labels"].items()
    for was, is_now in zip(before["spec"]["containers"], after["spec"]["containers"], strict=True):
        given = {key: value for key, value in was.items() if key not in ("env", "volumeMounts")}
        assert given.items() <= is_now.items()
        for key in ("env", "volumeMounts"):
            assert [one for one in is_now[key] if one in was.get(key, [])] == was.get(key, [])
    kept = {
        key: value for key, value in before["spec"].items() if key not in ("containers", "initContainers", "volumes")
    }
    assert kept.items() <= after["spec"].items()


def test_the_init_client_understands_what_it_is_told() -> None:
    wanted = claim(
        f"coco@{VERSION}",
        source="s3://bucket/$(HOME)/co,co",
        check="never",
        packTo="s3://bucket/store",
        options={"skipSpecial": True, "storage": {"region": "eu-1"}},
        secretRef={"name": "keys"},
    )
    wait = wait_of(injected(pod(timeout="90s"), wanted))
    assert wait["envFrom"] == [{"prefix": "DSAGENT_SECRET_0_", "secretRef": {"name": "keys"}}]
    environ = {one["name"]: one.get("value", "x") for one in wait["env"]}
    environ["DSAGENT_DATASETS"] = environ["DSAGENT_DATASETS"].replace("$$", "$")  # as kubelet does
    keys = {"DSAGENT_SECRET_0_AWS_ACCESS_KEY_ID": "id", "DSAGENT_SECRET_0_AWS_SECRET_ACCESS_KEY": "key"}
    settings = load_settings(environ | keys)
    (found,) = settings.datasets
    assert found.source == "s3://bucket/$(HOME)/co,co"
    assert found.version == VERSION
    assert found.credentials == {"access_key_id": "id", "secret_access_key": "key"}
    assert found.options == {
        "check": "never",
        "pack_to": "s3://bucket/store",
        "skip_special": True,
        "storage": {"region": "eu-1"},
    }
    assert settings.timeout == 90
    assert settings.agent.socket == "/run/dsagent/root/run/agent.sock"
    mounts = {one["name"]: one["mountPath"] for one in wait["volumeMounts"]}
    assert settings.root == mounts["dsagent-root"]
    assert settings.token_file == f"{mounts['dsagent-token']}/token"
    assert settings.data_dir_given


def test_a_cluster_dataset_is_said_to_be_one_and_its_secret_stays_where_it_is() -> None:
    spec = {"source": "s3://bucket/coco", "secretRef": {"name": "keys", "namespace": "data"}}
    found = ClusterDataset.model_validate({"metadata": {"name": "coco"}, "spec": spec})
    wait = wait_of(injected(pod(), Claim(found, None)))
    (told,) = [json.loads(one["value"]) for one in wait["env"] if one["name"] == "DSAGENT_DATASETS"]
    assert told == [
        {"name": "coco", "source": "s3://bucket/coco", "options": {"check": "fingerprint"}, "cluster": True}
    ]
    assert "envFrom" not in wait


@pytest.mark.parametrize(
    ("init", "order"),
    [
        ([container("fetch", "tool:1")], ["dsagent-pull-0", "fetch", "dsagent-wait"]),
        (
            [container("fetch", "tool:1"), container("index", "tool:2", args=["--in", "/datasets/coco"])],
            ["dsagent-pull-0", "dsagent-pull-1", "fetch", "dsagent-wait", "index"],
        ),
        (
            [container("proxy", "proxy:1", restartPolicy="Always"), container("index", volumeMounts=[OURS])],
            ["dsagent-pull-0", "proxy", "dsagent-wait", "index"],
        ),
        (
            [
                container("server", "s:1", restartPolicy="Always", command=["serve", "/datasets"]),
                container("last", "l:1"),
            ],
            ["dsagent-pull-0", "dsagent-pull-1", "dsagent-pull-2", "dsagent-wait", "server", "last"],
        ),
        (
            [container("a", env=[{"name": "IN", "value": "$(DSAGENT_DATASET_COCO)"}])],
            ["dsagent-pull-0", "dsagent-wait", "a"],
        ),
        ([container("same", "train:1")], ["same", "dsagent-wait"]),
    ],
    ids=["before", "user", "sidecar before", "sidecar user", "by variable", "image pulled already"],
)
def test_the_pods_own_init_containers_keep_their_order(init: list[dict[str, Any]], order: list[str]) -> None:
    after = injected(pod(*init))
    found = after["spec"]["initContainers"]
    assert names(found) == order
    waited = order.index("dsagent-wait")
    for one in found[waited + 1 :]:
        assert {"dsagent-root", "dsagent-datasets"} <= {mount["name"] for mount in one["volumeMounts"]}
    for one in found[:waited]:
        assert all(mount["name"] == "dsagent-no-op" for mount in one.get("volumeMounts", []))


def test_each_image_is_pulled_once_with_the_policy_of_its_container() -> None:
    containers = [
        container("a", "train:1"),
        container("b", "train:1"),
        container("c", "other:latest", imagePullPolicy="Always"),
    ]
    pulls = injected(pod(containers=containers))["spec"]["initContainers"][:-1]
    assert [(one["image"], one["imagePullPolicy"]) for one in pulls] == [
        ("train:1", "IfNotPresent"),
        ("other:latest", "Always"),
    ]


@pytest.mark.parametrize("amounts", [None, {"cpu": "4", "memory": "8Gi"}], ids=["best effort", "guaranteed"])
def test_a_guaranteed_pod_stays_guaranteed(amounts: dict[str, str] | None) -> None:
    resources: dict[str, Any] = {"resources": {"requests": amounts, "limits": amounts}} if amounts else {}
    after = injected(pod(containers=[container(**resources)]))
    for one in after["spec"]["initContainers"]:
        assert one["resources"]["requests"] == one["resources"]["limits"]
        assert set(one["resources"]["limits"]) == {"cpu", "memory"}
    assert after["spec"]["containers"][0].get("resources") == resources.get("resources")


def test_two_datasets_are_one_wait() -> None:
    after = injected(pod(datasets="coco, imagenet"))
    mounts = [one["mountPath"] for one in after["spec"]["containers"][0]["volumeMounts"]]
    assert mounts == ["/datasets", "/run/dsagent/data/coco", "/run/dsagent/data/imagenet"]
    assert names(after["spec"]["initContainers"]).count("dsagent-wait") == 1


@pytest.mark.parametrize(
    ("mount", "volume"),
    [
        (NFS, {"nfs": {"server": "nfs.example", "path": "/export", "readOnly": True}}),
        (
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        ),
        ({"hostPath": {"path": "/mnt/nfs"}}, {"hostPath": {"path": "/mnt/nfs", "type": "Directory"}}),
    ],
)
def test_local_mode_mounts_the_source_and_asks_nobody(mount: dict[str, Any], volume: dict[str, Any]) -> None:
    after = injected(pod(mode="local"), mount=mount)
    volumes = {one.pop("name"): one for one in after["spec"]["volumes"]}
    assert volumes == {"work": {"emptyDir": {}}, "dsagent-datasets": {"emptyDir": {}}, "dsagent-source-0": volume}
    assert names(after["spec"]["initContainers"]) == ["dsagent-wait"]
    source = {"name": "dsagent-source-0", "mountPath": "/run/dsagent/source/coco", "readOnly": True}
    assert after["spec"]["containers"][0]["volumeMounts"] == [OURS, source]
    environ = {one["name"]: one.get("value", "x") for one in wait_of(after)["env"]}
    settings = load_settings(environ)
    assert (settings.mode, settings.source_dir) == ("local", "/run/dsagent/source")
    assert (needs_host_path(injected(pod(mode="local"), mount=mount)) is not None) == ("hostPath" in mount)


def test_on_failure_source_mounts_the_source_beside_the_cache() -> None:
    after = injected(pod(on_failure="source"), mount=NFS)
    mounts = {one["mountPath"] for one in after["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {"/datasets", "/run/dsagent/data/coco", "/run/dsagent/source/coco"}
    settings = load_settings({one["name"]: one.get("value", "x") for one in wait_of(after)["env"]})
    assert (settings.mode, settings.on_failure, settings.source_dir) == ("cache", "source", "/run/dsagent/source")


@pytest.mark.parametrize("annotation", [{"mode": "local"}, {"on_failure": "source"}])
def test_a_source_that_cannot_be_mounted_is_refused(annotation: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match=r"Dataset coco does not say how; give it spec\.mount"):
        injected(pod(**annotation))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"volumes": [{"name": "dsagent-root", "hostPath": {"path": "/etc"}}]}, "volume dsagent-root of its own"),
        ({"volumes": [{"name": "dsagent-mine", "emptyDir": {}}]}, "volume dsagent-mine of its own"),
        ({"initContainers": [container("dsagent-wait", "evil:1")]}, "init container dsagent-wait of its own"),
        ({"initContainers": [container("dsagent-pull-7")]}, "init container dsagent-pull-7 of its own"),
        ({"containers": [container("dsagent-train")]}, "container dsagent-train of its own"),
        (
            {"containers": [container(volumeMounts=[{"name": "work", "mountPath": "/datasets/"}])]},
            "container train mounts work at /datasets/, where the datasets go",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "work", "mountPath": "//datasets"}])]},
            "container train mounts work at //datasets",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "work", "mountPath": "datasets/coco"}])]},
            "container train mounts work at datasets/coco",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "work", "mountPath": "/run/dsagent/data/x"}])]},
            "mounts work at /run/dsagent/data/x",
        ),
        (
            {
                "initContainers": [
                    container("early", "t:1", volumeMounts=[{"name": "work", "mountPath": "/datasets/x/.."}])
                ]
            },
            "container early mounts work at",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "dsagent-datasets", "mountPath": "/datasets"}])]},
            "mount dsagent-datasets at /datasets in train",
        ),
        (
            {"containers": [container(volumeMounts=[{**OURS, "mountPath": "/elsewhere"}])]},
            "mount dsagent-datasets at /elsewhere in train",
        ),
        ({"containers": [container(env=[{"name": "POD_UID", "value": "other"}])]}, "sets POD_UID"),
        (
            {"containers": [container(env=[{"name": "DSAGENT_DATASET_COCO", "value": "/x"}])]},
            "sets DSAGENT_DATASET_COCO",
        ),
    ],
)
def test_a_pod_that_names_what_is_ours_otherwise_is_refused(change: dict[str, Any], said: str) -> None:
    before = pod()
    before["spec"] |= change
    with pytest.raises(Refusal, match=said):
        injected(before)


def test_what_other_webhooks_add_does_not_hinder_a_second_pass() -> None:
    once = injected(pod())
    twice = copy.deepcopy(once)
    mirror = {"name": "proxy", "mountPath": "/var/run/proxy"}
    for one in (*twice["spec"]["initContainers"], *twice["spec"]["containers"]):
        one["volumeMounts"].append(mirror)
        one["env"] = [*one.get("env", []), {"name": "PROXY", "value": "x"}]
    twice["spec"]["initContainers"].insert(0, container("proxy-init", "proxy:1"))
    after = injected(twice)
    assert names(after["spec"]["initContainers"]) == ["dsagent-pull-0", "proxy-init", "dsagent-wait"]
    assert mirror in after["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "PROXY", "value": "x"} in after["spec"]["containers"][0]["env"]


def test_a_container_named_as_ours_is_refused_whatever_else_it_says() -> None:
    mine = injected(pod())
    mine["spec"]["containers"][0]["name"] = "dsagent-train"
    with pytest.raises(Refusal, match="container dsagent-train of its own"):
        injected(mine)


def test_init_containers_that_run_before_the_data_keep_their_environment() -> None:
    uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}}
    after = injected(pod(container("fetch", "tool:1", env=[uid]), container("log", env=[{**uid, "value": "mine"}])))
    by_name = {one["name"]: one for one in after["spec"]["initContainers"]}
    assert by_name["fetch"]["env"] == [uid]
    assert by_name["log"]["env"] == [{**uid, "value": "mine"}]


def test_names_that_become_one_variable_are_refused() -> None:
    with pytest.raises(Refusal, match=r"a\.b and a-b would both be DSAGENT_DATASET_A_B"):
        injected(pod(datasets="a.b, a-b"))
