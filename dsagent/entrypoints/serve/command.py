"""dsagent serve: the life of an agent."""

import asyncio
import contextlib
import fcntl
import gc
import json
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from dsagent.adapters.kubelet import Kubelet
from dsagent.adapters.kubernetes.config import in_pod
from dsagent.adapters.throttle import Throttle
from dsagent.agent.agent import Agent, Shares
from dsagent.core.errors import InUse, local_error
from dsagent.entrypoints.serve.app import make_app
from dsagent.entrypoints.serve.hub import Hub
from dsagent.entrypoints.serve.identity import AnyOf, NoTokens, TokenFile, Verifier
from dsagent.entrypoints.serve.logs import log_to_stderr
from dsagent.entrypoints.serve.server import run, servers
from dsagent.entrypoints.serve.settings import AgentSettings
from dsagent.entrypoints.serve.sources import allowed
from dsagent.entrypoints.serve.state import State
from dsagent.service.settings import Settings
from dsagent.wiring import local_agent, open_cluster

if TYPE_CHECKING:
    from dsagent.entrypoints.serve.kubernetes.presence import Presence

log = logging.getLogger("dsagent")

# An agent that is draining still has the root: its successor waits for it.
TAKEOVER_SECONDS = 60.0
POLL_SECONDS = 0.1
SWITCH_SECONDS = 0.0005
FULL_COLLECTION_AFTER = 1000  # collections of the middle generation; by default 10


def serve(settings: AgentSettings) -> None:
    """Serves until SIGTERM or SIGINT; raises UsageError, UnfitRoot, InUse."""
    log_to_stderr(settings.log_format)
    _allow_open_files()
    # Requests are answered beside flights: by default one of these would hold the interpreter for 5 ms at a time.
    sys.setswitchinterval(SWITCH_SECONDS)
    throttle = Throttle()
    throttle.rate = settings.bandwidth
    verifier: Verifier = TokenFile(settings.tokens) if settings.tokens else NoTokens()
    base = Settings(settings.root, settings.capacity, settings.keep_free, settings.workers)
    kubelet = Kubelet(settings.kubelet_root, in_pod(os.environ)) if settings.kubernetes else None
    shares = Shares(settings.slots, settings.tasks)
    agent = local_agent(base, shares, throttle, kubelet.mounted if kubelet else None)
    peers = frozenset({0, *settings.peers})
    state = State(agent, throttle, Hub(agent.events), verifier, peers, allowed(settings.sources))
    presence = _presence(settings, state, kubelet) if kubelet else None
    with _holding(settings):
        if presence is not None:
            presence.prepare()
        listening = servers(make_app(state), settings)
        try:
            begin, end = partial(_begin, state, presence), partial(_end, state, presence, settings.drain)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run(listening, begin, end))
        finally:
            with contextlib.suppress(OSError):
                os.unlink(settings.socket)


def _presence(settings: AgentSettings, state: State, kubelet: Kubelet) -> "Presence":
    """The agent's part in its cluster; tokens of pods are known besides those that are known already."""
    from dsagent.entrypoints.serve.kubernetes.presence import Presence  # noqa: PLC0415 - most of it is models
    from dsagent.entrypoints.serve.kubernetes.tokens import TokenReviews  # noqa: PLC0415 - likewise

    cluster = open_cluster("dsagent-agent")
    node = settings.node or ""
    state.verifier = AnyOf(state.verifier, TokenReviews(cluster, node, settings.administrator or ""))
    return Presence(cluster, node, kubelet, state)


def _begin(state: State, presence: "Presence | None") -> None:
    state.hub.start()
    threading.Thread(target=_recover, args=(state.agent, presence), name="recover", daemon=True).start()


def _recover(agent: Agent, presence: "Presence | None") -> None:
    try:
        agent.start()
        if presence is not None:
            presence.start()
        _collect_rarely()
        log.info("ready: %d tasks", len(agent.states()))
    except Exception:
        log.exception("the root cannot be brought into order; the agent ends")
        os._exit(1)


def _collect_rarely() -> None:
    """A full collection stops all threads, for 70-160 ms once there are thousands of tasks: from here on it comes
    rarely, and when the last flight has ended, and does not look at what is here to stay.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTION_AFTER)


async def _end(state: State, presence: "Presence | None", seconds: float) -> None:
    log.info("draining for up to %g s", seconds)
    state.draining = True
    state.hub.close()
    if presence is not None:
        await asyncio.to_thread(presence.stop)
    await asyncio.to_thread(state.agent.close, seconds)


def _allow_open_files() -> None:
    """Many clients wait at once, each with a connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def _holding(settings: AgentSettings) -> Iterator[None]:
    """Holds `locks/agent`, in which others find the agent; raises InUse while another one does."""
    path = Path(settings.root) / "locks" / "agent"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise local_error("make", str(path), error) from error
    deadline = time.monotonic() + TAKEOVER_SECONDS
    try:
        while not _locked(fd):
            if time.monotonic() > deadline:
                raise InUse("serve", str(settings.root), "another agent holds it", "stop that one first")
            time.sleep(POLL_SECONDS)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"agent": f"unix://{settings.socket}"}).encode(), 0)
        yield
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
