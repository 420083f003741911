"""Askers with tokens, for tests of who may do what."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.agents import AgentProcess, Reply


@dataclass(frozen=True)
class Asker:
    """A pod with its token, or an administrator's."""

    token: str
    namespace: str = ""
    uid: str = ""

    @property
    def entry(self) -> Mapping[str, str]:
        """Its place in the token file."""
        if not self.uid:
            return {"token": self.token, "role": "administrator"}
        return {"token": self.token, "role": "pod", "namespace": self.namespace, "uid": self.uid}

    def ask(self, agent: AgentProcess, method: str, path: str, body: Any = None) -> Reply:
        """Sends a request with its token."""
        return agent.ask(method, path, body, {"Authorization": f"Bearer {self.token}"})

    def task(self, *datasets: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The body of a task of its own."""
        owner = {"namespace": self.namespace, "name": f"pod-{self.uid}", "uid": self.uid}
        return {"owner": owner, "datasets": list(datasets), **more}

    def put(self, agent: AgentProcess, *datasets: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Puts its task, waits for its end, and gives its only dataset."""
        reply = self.ask(agent, "PUT", f"/v1/tasks/{self.uid}", self.task(*datasets, **more))
        assert reply.status == 200, reply
        info = reply.json
        while info["state"] in ("pending", "running"):
            info = self.ask(agent, "GET", f"/v1/tasks/{self.uid}?wait=10").json
        (found,) = info["datasets"]
        return dict(found)

    def end(self, agent: AgentProcess) -> None:
        """Ends its task, if it has one."""
        assert self.ask(agent, "DELETE", f"/v1/tasks/{self.uid}").status in (204, 404)


ADMIN = Asker("admins-token")
ONE = Asker("token-of-one", "team", "uid-one")
TWO = Asker("token-of-two", "team", "uid-two")
OTHER = Asker("token-of-another", "other", "uid-other")


def write_tokens(path: Path, *askers: Asker) -> Path:
    """A token file."""
    fresh = path.with_suffix(".new")
    fresh.write_text(yaml.safe_dump([dict(asker.entry) for asker in askers]))
    fresh.replace(path)
    return path
