"""The nodes from within: their agents, and what befalls nodes."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.kube import Namespace
from tools.cluster.chart import NAMESPACE
from tools.cluster.containerd import restart_containerd, start_containerd
from tools.cluster.layout import Cluster
from tools.cluster.node import await_ready, node_room, restart_kubelet
from tools.cluster.rooms import Room, stop, wait_until

ROOT = "/var/lib/dsagent"
_AGENT = "dsagent serve"
_ASK = f"""
import http.client, socket
def ask(method, path, body=None):
    connection = http.client.HTTPConnection("agent")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect("{ROOT}/run/agent.sock")
    connection.request(method, path, body, {{"Content-Type": "application/json"}})
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text
    return text
"""


@dataclass(frozen=True)
class NodeInside:
    """A node as its administrator sees it."""

    cluster: Cluster
    number: int

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def room(self) -> Room:
        return node_room(self.cluster, self.cluster.node(self.number))

    @property
    def disk(self) -> Path:
        """The cache's root, as the machine sees it."""
        return self.room.directory / ROOT.lstrip("/")

    def agent(self) -> str:
        """The name of the agent's pod."""
        system = Namespace(self.cluster, NAMESPACE)
        found = [
            pod["metadata"]["name"]
            for pod in system.all("pods")
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "agent"
            and pod["spec"].get("nodeName") == self.name
        ]
        assert len(found) == 1, found
        return str(found[0])

    def dsctl(self, *arguments: str) -> Any:
        """What dsctl says in the agent's container, as a document."""
        system = Namespace(self.cluster, NAMESPACE)
        return json.loads(system.exec(self.agent(), "dsctl", "--output=json", *arguments))

    def python(self, script: str) -> str:
        """What a script prints that runs in the agent's container, as its user."""
        return Namespace(self.cluster, NAMESPACE).exec(self.agent(), "python", "-c", script)

    def evict_all(self) -> None:
        """Remove every dataset, as soon as none is in use."""
        idle = "the leases of pods that are gone to end"
        wait_until(lambda: not any(version["leases"] for version in self.dsctl("ls")), idle, 60)
        for version in self.dsctl("ls"):
            self.dsctl("evict", version["dataset"])

    def limit_bandwidth(self, rate: int) -> None:
        """How many bytes a second come from all sources together; 0 for no limit."""
        self.python(_ASK + f'ask("PATCH", "/v1/limits", \'{{"bandwidth": {rate}}}\')')

    def metric(self, name: str) -> float:
        """A number that the agent has counted since it was started."""
        text = self.python(_ASK + 'print(ask("GET", "/metrics"))')
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(line.split()[1])

    def cached(self) -> dict[str, Any]:
        """The versions that the node's NodeDatasetCache lists, by namespace/name; the last one of each name."""
        found = Namespace(self.cluster, NAMESPACE).get("nodedatasetcache", self.name)
        versions = found.get("status", {}).get("versions", [])
        return {f"{version['namespace']}/{version['name']}": version for version in versions}

    def kill_agent(self) -> None:
        """Kill the agent as the kernel does when memory is short; kubelet starts it anew."""
        self.kill(_AGENT)

    def kill(self, pattern: str) -> None:
        """Kill the node's processes whose command lines match, and wait until they are gone."""
        before = self._pids(pattern)
        assert before, pattern
        for pid in before:
            self.room.run("kill", f"-{int(signal.SIGKILL)}", str(pid), check=False)
        wait_until(lambda: not set(before) & set(self._pids(pattern)), f"{pattern} to die", 30)

    def ask_on_the_node(self, *arguments: str) -> int:
        """The exit code of dsctl beside the agent, which is reached without the API server."""
        wait_until(lambda: bool(self._pids(_AGENT)), "an agent to run", 90)
        beside = ("nsenter", f"--target={min(self._pids(_AGENT))}", "--mount", "--pid", "--")
        path = "PATH=/opt/dsagent/bin:/usr/bin:/bin"
        return self.room.run(*beside, "env", "-i", path, "dsctl", f"--root={ROOT}", *arguments, check=False).returncode

    def has_agent(self) -> bool:
        """Whether its agent has said what it holds."""
        return "status" in Namespace(self.cluster, NAMESPACE).get("nodedatasetcache", self.name)

    def _pids(self, pattern: str) -> list[int]:
        """Processes, as the node numbers them."""
        return [int(pid) for pid in self.room.run("pgrep", "--full", pattern, check=False).stdout.split()]

    def stop_containerd(self) -> None:
        """Stop containerd, and leave the containers as they are: kubelet can neither start nor end any."""
        stop(self.room, "containerd")

    def start_containerd(self) -> None:
        """Start containerd, if it does not run, and wait until the node is ready."""
        start_containerd(self.room)
        await_ready(self.cluster, self.cluster.node(self.number))

    def restart_kubelet(self) -> None:
        restart_kubelet(self.cluster, self.cluster.node(self.number))

    def restart_containerd(self) -> None:
        restart_containerd(self.room)
