"""The client of the Kubernetes API does with a real API server what it does with the one of the unit tests."""

from collections.abc import Iterator

import pytest

from dsagent.adapters.kubernetes.client import ApiCluster
from dsagent.adapters.kubernetes.config import api_server
from dsagent.core.cluster import Cluster
from tests.support.clusters import NAMESPACE, ClusterContract
from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster as RealCluster
from tools.cluster.layout import the_cluster


@pytest.fixture(scope="module", autouse=True)
def _leaves_nothing() -> Iterator[None]:
    yield
    kubectl(the_cluster(), "delete", "namespace", NAMESPACE, "--wait=false")


class TestApiCluster(ClusterContract):
    @pytest.fixture
    def cluster(self, cluster: RealCluster) -> Cluster:
        return ApiCluster(api_server({}, str(cluster.kubeconfig)), "test")

    # A server that was started a moment ago has forgotten nothing; what follows from 410 is in test_watch.py.
    test_a_watch_from_long_ago_is_refused = None  # type: ignore[assignment]
