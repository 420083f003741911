"""Pods of all shapes: with a sidecar and an init container of their own, Guaranteed, while no webhook runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kube import TINY, Namespace, phase, pod
from tests.e2e.objects import annotated, dataset, job, make_files
from tools.cluster.chart import NAMESPACE
from tools.cluster.layout import Cluster, ClusterError
from tools.cluster.rooms import wait_until


def test_a_sidecar_and_an_own_init_container(namespace: Namespace, sources: Path) -> None:
    main = pod("trains", "sh", "-c", "cat /datasets/words/*; cat /shared/prepared", nodeName="node1")
    shared = [{"name": "shared", "mountPath": "/shared"}]
    prepares = {"name": "prepares", "image": TINY, "command": ["sh", "-c", "echo yes > /shared/prepared"]}
    watches = {"name": "watches", "image": TINY, "command": ["sleep", "1000"], "restartPolicy": "Always"}
    main["spec"]["initContainers"] = [
        watches | {"volumeMounts": shared},
        prepares | {"volumeMounts": shared},
    ]
    main["spec"]["containers"][0]["volumeMounts"] = shared
    main["spec"]["volumes"] = [{"name": "shared", "emptyDir": {}}]
    namespace.apply(dataset("words", make_files(sources / "words", count=1, size=3)), annotated(main, "words"))
    assert phase(namespace.wait_for_end("trains")) == "Succeeded"
    assert namespace.logs("trains", "main") == "aaayes\n"


def test_a_guaranteed_pod_keeps_its_exclusive_cpus(namespace: Namespace, sources: Path) -> None:
    main = pod("trains", "sh", "-c", "grep Cpus_allowed_list /proc/self/status", nodeName="node1")
    whole = {"cpu": "1", "memory": "64Mi"}
    main["spec"]["containers"][0]["resources"] = {"requests": whole, "limits": whole}
    namespace.apply(dataset("words", make_files(sources / "words")), annotated(main, "words"))
    ended = namespace.wait_for_end("trains")
    assert phase(ended) == "Succeeded"
    assert ended["status"]["qosClass"] == "Guaranteed"
    assert namespace.logs("trains", "main").split()[1].isdecimal()  # one CPU, neither a range nor a list


@pytest.fixture
def no_webhook(cluster: Cluster) -> Iterator[None]:
    """A cluster whose webhook has no replica."""
    system = Namespace(cluster, NAMESPACE)
    system.run("scale", "deployment", "dsagent-webhook", "--replicas=0")
    selector = "--selector=app.kubernetes.io/component=webhook"
    wait_until(lambda: not system.run("get", "pods", selector, "--output=name"), "the webhook to be gone", 60)
    yield
    system.run("scale", "deployment", "dsagent-webhook", "--replicas=2")
    system.run("rollout", "status", "deployment", "dsagent-webhook", "--timeout=90s")


def test_without_the_webhook_plain_pods_start_and_an_annotated_one_is_refused(
    namespace: Namespace, no_webhook: None, sources: Path
) -> None:
    namespace.apply(pod("plain", "true"))
    assert phase(namespace.wait_for_end("plain")) == "Succeeded"
    with pytest.raises(ClusterError, match="webhook"):
        namespace.apply(annotated(pod("trains", "true"), "words"))
    assert not namespace.get("pod", "trains")


def test_an_annotated_job_waits_for_the_webhook(
    cluster: Cluster, namespace: Namespace, no_webhook: None, sources: Path
) -> None:
    wanted = annotated(pod("trains", "sh", "-c", "cat /datasets/words/*"), "words")
    namespace.apply(dataset("words", make_files(sources / "words", count=1, size=3)), job(wanted))
    wait_until(lambda: "FailedCreate" in namespace.reasons("trains"), "an event that says what the Job waits for", 60)
    Namespace(cluster, NAMESPACE).run("scale", "deployment", "dsagent-webhook", "--replicas=2")
    namespace.wait("job", "trains", lambda found: found.get("status", {}).get("succeeded") == 1, "to succeed", 180)
