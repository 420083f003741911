"""A cluster that `make e2e` has started, and for each story a namespace of its own."""

import re
import secrets
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.evidence import evidence
from tests.e2e.kube import Namespace
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster, the_cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the stories that take long as well")
    parser.addoption("--picture", help="the SVG file for what test_overlap.py measures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        long = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a story that failed bring what is known about it: when the run is over the cluster is gone."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        found: Mapping[str, object] = item.funcargs
        namespaces = [one for one in found.values() if isinstance(one, Namespace)]
        report.sections += evidence(the_cluster(), namespaces)
    return report


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The one of this machine."""
    found = the_cluster()
    if not found.kubeconfig.exists() or kubectl(found, "get", "--raw", "/readyz", check=False).returncode:
        pytest.exit("there is no cluster on this machine: make e2e, or make cluster NODES=2 first", returncode=2)
    return found


@pytest.fixture
def sources(cluster: Cluster, request: pytest.FixtureRequest) -> Path:
    """A folder of the storage that all nodes mount."""
    folder = cluster.sources / f"{request.node.name}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A new namespace, named for the test."""
    yield from _new_namespace(cluster, request)


@pytest.fixture
def other_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Another one."""
    yield from _new_namespace(cluster, request)


def _new_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    made = Namespace(cluster, f"{words}-{secrets.token_hex(2)}")
    kubectl(cluster, "create", "namespace", made.name)
    # Pods name it, and without it they are refused; the controller manager makes it a moment later.
    made.wait("serviceaccount", "default", bool, "to be made")
    yield made
    made.run("delete", "pods", "--all", "--grace-period=1")
    kubectl(cluster, "delete", "namespace", made.name, "--wait=false")
