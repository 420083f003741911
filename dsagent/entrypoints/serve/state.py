"""What the parts of the app share."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import Request
from prometheus_client import CollectorRegistry

from dsagent.adapters.throttle import Throttle
from dsagent.agent.agent import Agent
from dsagent.entrypoints.serve.handover import Handovers
from dsagent.entrypoints.serve.hub import Hub
from dsagent.entrypoints.serve.identity import Verifier
from dsagent.entrypoints.serve.sources import Allowed

if TYPE_CHECKING:
    from dsagent.entrypoints.serve.kubernetes.datasets import Datasets


@dataclass
class State:
    """The agent, who may ask it, and for what. `datasets`: those of its cluster, if it is in one."""

    agent: Agent
    throttle: Throttle
    hub: Hub
    verifier: Verifier
    peers: frozenset[int]
    allowed: Allowed = Allowed()  # noqa: RUF009 - it is frozen
    handovers: Handovers = field(default_factory=Handovers)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    draining: bool = False
    datasets: "Datasets | None" = None


def state_of(request: Request) -> State:
    """The state of the app that a request came to."""
    state: State = request.app.state.shared
    return state
