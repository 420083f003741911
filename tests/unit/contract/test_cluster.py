"""What every Cluster must do: the fake here, a real API server in tests/e2e."""

import pytest

from tests.fakes.cluster import MemoryCluster
from tests.support.clusters import ClusterContract


class TestMemoryCluster(ClusterContract):
    @pytest.fixture
    def cluster(self) -> MemoryCluster:
        return MemoryCluster()
