"""Where everything of the cluster is: folders, names and addresses."""

from dataclasses import dataclass
from pathlib import Path

from tools.servers import tools_directory

BRIDGE = "dsagent0"
API_ADDRESS = "10.100.0.1"
API_SERVER = f"https://{API_ADDRESS}:6443"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
PODS = "10.244.0.0/16"
CGROUP = "dsagent-cluster"
REGISTRY = f"{API_ADDRESS}:5001"
IMAGE_NAMESPACE = "dsagent"
IMAGE_TAG = "dev"


class ClusterError(Exception):
    """What was being done, why it failed, and what to do."""


@dataclass(frozen=True)
class Node:
    """One of the machine's nodes; the first has number 1."""

    number: int
    directory: Path

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def address(self) -> str:
        """Of the node in the bridge's network."""
        return f"10.100.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """The network of its pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def link(self) -> str:
        """The bridge's end of its cable."""
        return f"dsagent{self.number}"

    @property
    def cgroup(self) -> str:
        return f"/{CGROUP}/{self.name}"


@dataclass(frozen=True)
class Cluster:
    """The folder that has all of it; there is one cluster on a machine, for its addresses are fixed."""

    directory: Path

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def logs(self) -> Path:
        return self.directory / "log"

    @property
    def sources(self) -> Path:
        """A folder that all nodes see at this path, as if it were mounted from a file server."""
        return self.directory / "sources"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.directory / "admin.conf"

    def node(self, number: int) -> Node:
        return Node(number, self.directory / f"node{number}")

    @property
    def nodes(self) -> list[Node]:
        """Those that were begun."""
        found = sorted(int(path.name.removeprefix("node")) for path in self.directory.glob("node[0-9]*"))
        return [self.node(number) for number in found]


def the_cluster() -> Cluster:
    """The one of this machine, running or not."""
    return Cluster(tools_directory() / "cluster")
