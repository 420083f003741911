"""A namespace of the running cluster, and how stories talk to it: objects are what kubectl takes and gives, JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tools.cluster.kubectl import kubectl
from tools.cluster.layout import Cluster
from tools.cluster.rooms import wait_until

Object = Mapping[str, Any]

TINY = "docker.io/local/pause:1"  # busybox and nothing else
PYTHON = "docker.io/dsagent/init:dev"  # Debian with Python


@dataclass(frozen=True)
class Namespace:
    """A namespace and what a user does in it."""

    cluster: Cluster
    name: str

    def run(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        """What kubectl prints in this namespace; raises ClusterError."""
        done = kubectl(self.cluster, f"--namespace={self.name}", *arguments, check=check, stdin=stdin)
        return done.stdout

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.run("apply", "--filename=-", stdin=json.dumps(items))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object; an empty one if there is none."""
        text = self.run("get", kind, name, "--output=json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        items: list[dict[str, Any]] = json.loads(self.run("get", kind, "--output=json"))["items"]
        return items

    def wait(
        self, kind: str, name: str, holds: Callable[[dict[str, Any]], bool], what: str, seconds: float = 90
    ) -> dict[str, Any]:
        """The object as soon as something holds of it; raises ClusterError with what is known about it."""
        seen: dict[str, Any] = {}

        def check() -> bool:
            seen.clear()
            seen.update(self.get(kind, name))
            return bool(seen) and holds(seen)

        wait_until(check, f"{kind} {name} of {self.name} {what}", seconds)
        return seen

    def wait_for_end(self, pod: str, seconds: float = 120) -> dict[str, Any]:
        """The pod when all its containers have ended, well or not."""
        return self.wait("pod", pod, lambda found: phase(found) in ("Succeeded", "Failed"), "to end", seconds)

    def wait_until_running(self, pod: str, seconds: float = 120) -> dict[str, Any]:
        """The pod when its main containers run."""
        return self.wait("pod", pod, lambda found: phase(found) == "Running", "to run", seconds)

    def logs(self, pod: str, container: str) -> str:
        """What a container has printed."""
        return self.run("logs", pod, f"--container={container}")

    def exec(self, pod: str, *command: str) -> str:
        """What a command prints in the pod's first container."""
        return self.run("exec", pod, "--", *command)

    def delete(self, kind: str, name: str, *options: str) -> None:
        """Delete an object and wait until it is gone."""
        self.run("delete", kind, name, "--ignore-not-found", *options)

    def reasons(self, name: str) -> list[str]:
        """The reasons of all events about an object, oldest first."""
        events = [event for event in self.all("events") if event["involvedObject"]["name"] == name]
        return [event["reason"] for event in sorted(events, key=lambda event: event["metadata"]["creationTimestamp"])]


def phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def pod(name: str, *command: str, image: str = TINY, **spec: Any) -> dict[str, Any]:
    """A pod of one container, `main`, that runs the command as user 1000 and ends."""
    main = {"name": "main", "image": image, "command": list(command), "imagePullPolicy": "IfNotPresent"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
            "containers": [main],
            **spec,
        },
    }
