"""The data come while the image is pulled: a pod that needs both starts hardly later than with one of the two."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kube import TINY, Namespace, Object, phase, pod
from tests.e2e.nodes import NodeInside
from tests.e2e.objects import annotated, dataset, make_files
from tests.e2e.registry import Registry, slow_registry
from tests.e2e.timeline import course
from tools.bench.timeline import Course, timeline
from tools.cluster.layout import Cluster

pytestmark = pytest.mark.full

_PLAIN = Path(__file__).parents[2] / "docs" / "guides" / "kubernetes-plain.yaml"
_SECONDS = 60
_RATE = 2_000_000  # bytes a second, of the registry and of all sources together
_FILES = 100
_SCRIPT = ("sh", "-c", "echo it runs")


@pytest.fixture
def node(cluster: Cluster) -> Iterator[NodeInside]:
    """A node that fetches slowly."""
    found = NodeInside(cluster, 1)
    found.limit_bandwidth(_RATE)
    yield found
    found.limit_bandwidth(0)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that is as slow."""
    with slow_registry(tmp_path, _RATE) as found:
        yield found


def with_one_waiting_init_container(wanted: Object, source: Path) -> dict[str, Any]:
    """The pod as the guide has it for clusters without the webhook."""
    spec = yaml.safe_load(_PLAIN.read_text())["spec"]["template"]["spec"]
    spec["initContainers"][0]["env"][0]["value"] = f"images={source}"
    (main,) = spec["containers"]
    spec["containers"] = [{**main, **wanted["spec"]["containers"][0]}]
    return {**wanted, "spec": {**wanted["spec"], **spec}}


def test_it_starts_hardly_later_than_with_the_longer_of_the_two_alone(
    namespace: Namespace, sources: Path, node: NodeInside, registry: Registry, pytestconfig: pytest.Config
) -> None:
    on_the_node = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    source = sources / "images"
    make_files(source, _FILES, _SECONDS * _RATE // _FILES)
    namespace.apply(dataset("images", source))

    def run(wanted: Object, title: str) -> Course:
        namespace.apply(wanted)
        name = wanted["metadata"]["name"]
        assert phase(namespace.wait_for_end(name, 6 * _SECONDS)) == "Succeeded"
        found = course(namespace, name, title)
        namespace.delete("pod", name)
        return found

    def fresh(name: str) -> dict[str, Any]:
        """A pod whose image no node has, on a node that has no dataset."""
        node.evict_all()
        return pod(name, *_SCRIPT, image=registry.push(name, _SECONDS * _RATE), **on_the_node)

    image = run(fresh("image"), "the image alone")
    node.evict_all()
    data = run(annotated(pod("data", *_SCRIPT, image=TINY, **on_the_node), "images"), "the data alone")
    both = run(annotated(fresh("both"), "images"), "with dsagent")
    after = run(with_one_waiting_init_container(fresh("after"), source), "one init container that waits")

    picture = pytestconfig.getoption("--picture")
    if picture:
        size, rate = _SECONDS * _RATE // 1_000_000, _RATE // 1_000_000
        note = f"Image and dataset of {size} MB each, both at {rate} MB/s"
        Path(picture).write_text(timeline("From bind to start of a pod", note, [image, data, both, after]))
    print({one.title: round(one.started, 1) for one in (image, data, both, after)})
    assert both.started <= 1.15 * max(image.started, data.started)
    assert both.started <= 0.75 * after.started
