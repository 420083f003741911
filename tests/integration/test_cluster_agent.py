"""The agent of a node among pods and Datasets: with a cluster in memory, and real tasks, flights and files."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsagent.core.cluster import DATASETS, NAMESPACES, NODE_DATASET_CACHES, PODS, SECRETS
from dsagent.core.errors import InUse
from dsagent.service.evict import evict
from tests.support.cluster_agents import NAMESPACE, NODE, ClusterAgent, cluster_agent
from tests.support.waiting import until


@pytest.fixture
def here(scratch: Path) -> Iterator[ClusterAgent]:
    with cluster_agent(scratch) as found:
        yield found


def ready(here: ClusterAgent, uid: str) -> bool:
    task = here.task(uid)
    return task is not None and task.state == "ready"


def test_what_a_bound_pod_asks_for_comes_before_it_asks(here: ClusterAgent) -> None:
    source = here.source("imagenet")
    here.dataset("imagenet", source)
    uid = here.bind("train", [{"name": "imagenet", "source": source, "options": {}}])
    until(lambda: ready(here, uid))
    assert (here.root / "pods" / uid / "imagenet" / "file").read_text() == "data"
    assert here.task(uid).owner.name == "train"
    until(lambda: here.events("CacheReady"))
    (said, *_) = [one for one in here.events("CacheReady") if one["regarding"]["kind"] == "Pod"]
    assert said["regarding"] == {"apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": "train", "uid": uid}
    until(lambda: any(one["regarding"]["kind"] == "Dataset" for one in here.events("CacheReady")))


def test_the_no_op_for_image_pulls_is_there(here: ClusterAgent) -> None:
    program = here.root / "bin" / "noop"
    assert program.read_bytes()[:4] == b"\x7fELF"
    assert program.stat().st_mode & 0o777 == 0o755


def test_a_pod_that_is_gone_frees_what_it_used_when_nothing_of_it_is_left(here: ClusterAgent) -> None:
    source = here.source("imagenet")
    uid = here.bind("train", [{"name": "imagenet", "source": source}])
    until(lambda: ready(here, uid))
    here.mount(uid, "imagenet")
    here.cluster.delete(PODS, "train", NAMESPACE)  # by force: its container still runs
    other = here.bind("other", [{"name": "imagenet", "source": source}])
    until(lambda: ready(here, other))
    here.phase("other", "Succeeded")
    until(lambda: here.task(other) is None)
    assert ready(here, uid)
    here.clean(uid)
    until(lambda: here.task(uid) is None and not (here.root / "pods" / uid).exists())


def test_what_is_mounted_is_in_use_even_if_all_else_is_lost(here: ClusterAgent) -> None:
    assert here.agent is not None
    uid = here.bind("train", [{"name": "imagenet", "source": here.source("imagenet")}])
    until(lambda: ready(here, uid))
    here.mount(uid, "imagenet")
    here.agent.delete(uid)
    with pytest.raises(InUse, match=f"pod {uid}"):
        evict(here.agent.node, f"{NAMESPACE}/imagenet", force=True, dry_run=False)
    here.kubelet.now.clear()
    evict(here.agent.node, f"{NAMESPACE}/imagenet", force=False, dry_run=False)


def test_pods_that_went_while_the_agent_was_away_free_what_they_used(here: ClusterAgent) -> None:
    source = here.source("imagenet")
    gone, stays = (here.bind(name, [{"name": "imagenet", "source": source}]) for name in ("gone", "stays"))
    until(lambda: ready(here, gone) and ready(here, stays))
    lost = "00000000-lost"  # links of a task whose file is lost
    (here.root / "pods" / lost).mkdir()
    (here.root / "pods" / lost / "imagenet").symlink_to((here.root / "pods" / gone / "imagenet").readlink())
    here.end()
    here.cluster.delete(PODS, "gone", NAMESPACE)
    here.clean(gone)
    here.begin()
    until(lambda: here.task(gone) is None and not (here.root / "pods" / lost).exists())
    assert ready(here, stays)
    assert (here.root / "pods" / stays / "imagenet" / "file").exists()


def test_no_lease_ends_while_the_api_is_silent(here: ClusterAgent) -> None:
    source = here.source("imagenet")
    uid = here.bind("train", [{"name": "imagenet", "source": source}])
    until(lambda: ready(here, uid))
    here.end()
    here.cluster.delete(PODS, "train", NAMESPACE)
    here.clean(uid)
    here.cluster.set_down(True)
    agent = here.begin()
    assert here.presence is not None
    with pytest.raises(Exception, match="down"):
        here.presence._pods.sweep()
    assert ready(here, uid)
    assert agent.recovered
    here.cluster.set_down(False)
    until(lambda: here.task(uid) is None)


def test_the_pods_own_request_finds_its_task_though_the_dataset_was_changed(here: ClusterAgent) -> None:
    from dsagent.api.v1 import DatasetRequest, TaskOwner, TaskRequest  # noqa: PLC0415
    from dsagent.entrypoints.serve.asking import task_spec  # noqa: PLC0415
    from dsagent.entrypoints.serve.identity import Identity  # noqa: PLC0415

    assert here.agent is not None
    uid = here.bind("train", [{"name": "imagenet", "source": here.source("imagenet")}])
    until(lambda: ready(here, uid))
    owner = TaskOwner(namespace=NAMESPACE, name="train", uid=uid)
    again = TaskRequest(owner=owner, datasets=[DatasetRequest(name="imagenet", source=here.source("newer"))])
    spec = task_spec(uid, again, Identity("pod", NAMESPACE, uid), here.state)
    assert here.agent.put(spec).state == "ready"


def test_a_shared_dataset_is_kept_once_for_those_who_may_use_it(here: ClusterAgent) -> None:
    here.cluster.create(NAMESPACES, {"metadata": {"name": "strangers"}})
    here.shared("coco", here.source("coco"), allowedNamespaces={"matchLabels": {"team": "vision"}})
    uid = here.bind("train", [{"name": "coco", "source": "/no/matter", "cluster": True}])
    until(lambda: ready(here, uid))
    assert (here.root / "pods" / uid / "coco" / "file").resolve().parts[-5] == "_cluster"
    body = here.cluster.get(PODS, "train", NAMESPACE)
    here.cluster.create(PODS, {**body, "metadata": {"name": "theirs"}}, "strangers")
    until(lambda: here.events("CacheDelayed"))
    assert "allowedNamespaces" in here.events("CacheDelayed")[0]["note"]


def test_credentials_of_a_dataset_are_read_where_that_is_allowed(here: ClusterAgent) -> None:
    here.dataset("private", here.source("private"), secretRef={"name": "keys"})
    uid = here.bind("early", [{"name": "private", "source": str(here.sources / "private")}])
    until(lambda: here.events("CacheDelayed"))
    assert here.task(uid) is None
    data = {"AWS_ACCESS_KEY_ID": "canary-key", "AWS_SECRET_ACCESS_KEY": "canary-secret"}
    secret = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    here.cluster.create(SECRETS, {"metadata": {"name": "keys"}, "data": secret}, NAMESPACE)
    later = here.bind("later", [{"name": "private", "source": str(here.sources / "private")}])
    until(lambda: here.task(later) is not None)
    assert here.agent is not None
    spec = here.agent.spec(later)
    assert spec is not None
    assert dict(spec.wanted[0].credentials) == {"access_key_id": "canary-key", "secret_access_key": "canary-secret"}
    kept = [path.read_bytes() for path in here.root.rglob("*") if path.is_file()]
    assert not any(b"canary" in one for one in kept)
    assert "canary" not in repr(here.cluster._happened[-20:]).replace(repr(secret), "")


def test_a_pod_that_was_never_injected_is_told(here: ClusterAgent) -> None:
    body = {
        "metadata": {"name": "plain", "annotations": {"dsagent.io/datasets": "imagenet"}},
        "spec": {"nodeName": NODE, "containers": [{"name": "main"}]},
    }
    here.cluster.create(PODS, body, NAMESPACE)
    until(lambda: here.events("NotInjected"))
    assert here.events("NotInjected")[0]["type"] == "Warning"


def test_a_pod_that_goes_on_without_its_data_finds_an_empty_folder_until_they_come(here: ClusterAgent) -> None:
    uid = here.bind(
        "train", [{"name": "imagenet", "source": str(here.sources / "missing")}], DSAGENT_ON_FAILURE="source"
    )
    until(lambda: here.task(uid) is not None and here.task(uid).state == "failed")
    link = here.root / "pods" / uid / "imagenet"
    until(link.is_dir)  # a source that is not there may be known before the link is made
    assert list(link.iterdir()) == []
    assert link.resolve().is_relative_to(here.root)


def test_the_report_says_what_is_here_and_is_not_written_for_nothing(here: ClusterAgent) -> None:
    uid = here.bind("train", [{"name": "imagenet", "source": here.source("imagenet")}])
    until(lambda: [one["state"] for one in here.report().get("versions", ())] == ["Ready"])
    until(lambda: here.report()["versions"][0]["inUse"])
    (found,) = here.report()["versions"]
    assert (found["namespace"], found["name"], found["files"], found["leases"]) == (NAMESPACE, "imagenet", 1, 1)
    owner = here.cluster.get(NODE_DATASET_CACHES, NODE)["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Node", NODE)
    here.phase("train", "Succeeded")
    until(lambda: not here.report()["versions"][0]["inUse"])
    assert here.task(uid) is None
    conditions = {one["type"]: one["status"] for one in here.report()["conditions"]}
    assert conditions == {"Ready": "True", "Schedulable": "True"}
    here.end()
    assert {one["type"]: one["status"] for one in here.report()["conditions"]}["Ready"] == "False"


def test_a_prefetch_is_kept_as_long_as_the_node_is_named(here: ClusterAgent) -> None:
    made = here.dataset("imagenet", here.source("imagenet"), prefetch={"nodes": 1})
    task = f"prefetch-{made['metadata']['uid']}.0"

    def decide(nodes: list[str], **more: Any) -> None:
        change = {"status": {"prefetch": {"nodes": nodes, **more}}}
        here.cluster.patch(DATASETS, "imagenet", change, NAMESPACE, subresource="status")

    decide(["n2", NODE])
    until(lambda: ready(here, task))
    decide([NODE], renewed="2026-11-01T00:00:00Z")
    until(lambda: here.task(task) is None)
    renewed = [one.id for one in here.agent.tasks()] if here.agent else []
    assert len(renewed) == 1
    decide(["n2"])
    until(lambda: here.task(renewed[0]) is None)
    until(lambda: [one["leases"] for one in here.report()["versions"]] == [0])


def test_a_deleted_dataset_goes_when_nobody_uses_it(here: ClusterAgent) -> None:
    source = here.source("imagenet")
    here.cluster.create(
        DATASETS,
        {"metadata": {"name": "imagenet", "finalizers": ["dsagent.io/cached-copies"]}, "spec": {"source": source}},
        NAMESPACE,
    )
    uid = here.bind("train", [{"name": "imagenet", "source": source}])
    until(lambda: ready(here, uid))
    here.cluster.delete(DATASETS, "imagenet", NAMESPACE)
    assert ready(here, uid)
    here.phase("train", "Succeeded")
    until(lambda: here.report()["versions"] == [])
    until(lambda: here.events("CacheEvicted"))
