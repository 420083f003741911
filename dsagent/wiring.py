"""The one place where adapters meet services."""

import math
import os
from typing import TYPE_CHECKING, NamedTuple

from dsagent.adapters import linux
from dsagent.adapters.directory import DirectorySource, DirectoryStore
from dsagent.adapters.throttle import Throttle, ThrottledSource, ThrottledStore
from dsagent.contract import ENV_AGENT
from dsagent.core.errors import AgentUnreachable, UsageError
from dsagent.core.ports import Location, Source, Store
from dsagent.core.space import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsagent.adapters.agent_address import Access
    from dsagent.adapters.agent_client import AgentVerbs
    from dsagent.adapters.kubernetes.client import ApiCluster
    from dsagent.agent.agent import Agent, Shares
    from dsagent.core.bound_pods import MountedVersion
    from dsagent.service.node import Meter, Node
    from dsagent.service.settings import Settings
    from dsagent.service.verbs import Verbs

MOST_WORKERS = 16


class Wiring:
    """Opens sources and stores by URL; each is opened once. The same here and in the workers.

    What is read from them passes the throttle, if there is one. `keep=False` opens them anew each time: a process
    that lives long would collect connections, and credentials.
    """

    def __init__(self, throttle: Throttle | None = None, keep: bool = True) -> None:
        self._throttle = throttle
        self._keep = keep
        self._sources: dict[Location, Source] = {}
        self._stores: dict[Location, Store] = {}

    @property
    def descriptor(self) -> int:
        """What the workers' opener is made from: the throttle's descriptor, or -1."""
        return self._throttle.descriptor if self._throttle else -1

    def source(self, location: Location) -> Source:
        """The source at a path or URL; raises UsageError for a protocol that is not installed."""
        source = self._sources.get(location)
        if source is None:
            source = _open_source(location)
            if self._throttle:
                source = ThrottledSource(source, self._throttle)
            if self._keep:
                self._sources[location] = source
        return source

    def store(self, location: Location) -> Store:
        """The store at a path or URL; raises UsageError for a protocol that is not installed."""
        store = self._stores.get(location)
        if store is None:
            store = _open_store(location)
            if self._throttle:
                store = ThrottledStore(store, self._throttle)
            if self._keep:
                self._stores[location] = store
        return store

    def local_store(self, folder: str) -> Store:
        """A folder of the root with a version's manifest; it is synced together with the version's data."""
        return DirectoryStore(Location(folder), durable=False)


def _open_source(location: Location) -> Source:
    protocol, path = _split(location.url)
    if protocol == "file":
        return DirectorySource(Location(path, location.options))
    if protocol == "s3":
        from dsagent.adapters.objects import ObjectSource  # noqa: PLC0415 - optional, and slow to import

        return ObjectSource(location)
    from dsagent.adapters.filesystems import FilesystemSource  # noqa: PLC0415 - optional, and slow to import

    return FilesystemSource(location)


def _open_store(location: Location) -> Store:
    protocol, path = _split(location.url)
    if protocol == "file":
        return DirectoryStore(Location(path, location.options))
    if protocol == "s3":
        from dsagent.adapters.objects import ObjectStore  # noqa: PLC0415 - optional, and slow to import

        return ObjectStore(location)
    from dsagent.adapters.filesystems import FilesystemStore  # noqa: PLC0415 - optional, and slow to import

    return FilesystemStore(location)


def _split(url: str) -> tuple[str, str]:
    protocol, separator, path = url.partition("://")
    if not separator:
        return "file", url
    return protocol, path


def local_node(settings: "Settings", meter: "Meter") -> "Node":
    """The cache below a root on this machine; raises UnfitRoot if the root lies on a network filesystem."""
    from dsagent.adapters.sqlite_catalog import SqliteCatalog  # noqa: PLC0415 - workers start without it
    from dsagent.service.node import Node, SystemClock  # noqa: PLC0415 - likewise

    root = settings.root
    linux.refuse_network_filesystem(str(root))
    return Node(
        root=root,
        catalog=SqliteCatalog(root / "catalog.sqlite", root),
        disk=linux.LinuxDisk(str(root)),
        clock=SystemClock(),
        limits=Limits(settings.capacity, settings.keep_free),
        open=Wiring(),
        meter=meter,
        workers=settings.workers or default_workers(),
        mount_token=linux.mount_token,
        sync=linux.sync_filesystem,
    )


def local_agent(
    settings: "Settings",
    shares: "Shares",
    throttle: Throttle,
    mounted: "Callable[[], Sequence[MountedVersion]] | None" = None,
) -> "Agent":
    """The agent of a root on this machine; `mounted` as Node has it. Raises UnfitRoot."""
    from dataclasses import replace  # noqa: PLC0415 - workers start without it

    from dsagent.agent.agent import Agent  # noqa: PLC0415 - likewise
    from dsagent.agent.errand import ErrandMeter  # noqa: PLC0415 - likewise
    from dsagent.agent.events import EventLog  # noqa: PLC0415 - likewise

    node = replace(local_node(settings, ErrandMeter()), open=Wiring(throttle, keep=False))
    if mounted is not None:
        node = replace(node, mounted=mounted)
    return Agent(node, shares, EventLog(), linux.release_memory)


def open_cluster(manager: str, kubeconfig: str = "", context: str = "") -> "ApiCluster":
    """The Kubernetes API that this pod or a kubeconfig leads to, asked in the name of `manager`; raises UsageError."""
    from dsagent.adapters.kubernetes.client import ApiCluster  # noqa: PLC0415 - most of what runs has no cluster
    from dsagent.adapters.kubernetes.config import api_server  # noqa: PLC0415 - likewise

    return ApiCluster(api_server(os.environ, kubeconfig, context), manager)


class Asking(NamedTuple):
    """How an agent is asked, if there is one. `agent`: the address that was given; `looked_at`: whether somebody sees
    the meter; `patience`: seconds that it may be away, as while it is started anew, until it is given up; `node`: of
    the cluster that the kubeconfig leads to.
    """

    agent: str | None = None
    looked_at: bool = True
    patience: float = 60.0
    node: str | None = None


def open_verbs(settings: "Settings", meter: "Meter", asking: Asking) -> "Verbs":
    """The verbs on a root: through the agent that was asked for or that holds it, else by this process's own work.

    Raises UsageError, UnfitRoot.
    """
    access = _find_agent(settings, asking)
    if access is not None:
        return _ask_agent(access, settings, meter, asking)
    from dsagent.service.verbs import LocalVerbs  # noqa: PLC0415 - who asks an agent does without

    return LocalVerbs(local_node(settings, meter))


def open_agent(settings: "Settings", meter: "Meter", asking: Asking) -> "AgentVerbs":
    """The agent that was asked for, or that holds the root; raises AgentUnreachable if there is none."""
    access = _find_agent(settings, asking)
    if access is None:
        raise AgentUnreachable(
            "find",
            f"an agent of {settings.root}",
            "none holds this root",
            f"start one: dsagent serve --root {settings.root} --socket PATH; or name one: --agent unix:///PATH",
        )
    return _ask_agent(access, settings, meter, asking)


def _find_agent(settings: "Settings", asking: Asking) -> "Access | None":
    """An address that was given comes first, then the root that was given, then DSAGENT_AGENT, then DSAGENT_ROOT."""
    from dsagent.adapters import agent_address as agents  # noqa: PLC0415 - workers start without it

    if asking.node is not None:
        from dsagent.adapters.kubernetes.agents import Proxied  # noqa: PLC0415 - most agents are this machine's

        if asking.agent is not None or settings.origins.get("root") == "--root":
            raise UsageError("use", f"--node {asking.node}", "--agent or --root is given, too", "give one of them")
        return agents.Access(agents.Address(f"node {asking.node}"), way=Proxied(open_cluster("dsctl"), asking.node))
    given = asking.agent
    if given is None and settings.origins.get("root") != "--root":
        given = os.environ.get(ENV_AGENT) or None
    address = agents.find_agent(settings.root) if given is None else agents.parse_address(given)
    return agents.access(address, os.environ) if address is not None else None


def _ask_agent(access: "Access", settings: "Settings", meter: "Meter", asking: Asking) -> "AgentVerbs":
    import logging  # noqa: PLC0415 - workers start without

    from dsagent.adapters.agent_client import AgentVerbs  # noqa: PLC0415 - most roots have no agent
    from dsagent.adapters.agent_http import AgentHttp  # noqa: PLC0415 - likewise

    log = logging.getLogger("dsagent")
    log.info("setting: agent = %s", access.address.text)
    # Through a cluster's proxy no credentials of this user's are sent: the Dataset says whose are used.
    environ = {} if access.way else os.environ
    verbs = AgentVerbs(AgentHttp(access, asking.patience), meter, asking.looked_at, environ)
    if access.address.lock is None and settings.origins.get("root") == "--root":
        root = verbs.root
        if os.path.realpath(root) != os.path.realpath(settings.root):
            cause = f"the agent at {access.address.text} has another root, {root}"
            raise UsageError("use", f"--root {settings.root}", cause, "give --root or --agent, not both")
    for name in ("capacity", "keep_free"):
        if settings.origins.get(name, "").startswith("--"):
            log.warning("%s is not used: an agent has its own", settings.origins[name])
    return verbs


def default_workers() -> int:
    """min(16, the CPUs that affinity mask and cgroup quota leave)."""
    return max(1, math.ceil(min(MOST_WORKERS, len(os.sched_getaffinity(0)), linux.cpu_quota())))
