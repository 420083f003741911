"""/metrics: what Prometheus reads, in base units; names of datasets or pods are not among it."""

import collections
import logging
import platform
from collections.abc import Iterator
from time import perf_counter

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsagent import __version__
from dsagent.agent.secrets import remembering
from dsagent.agent.subject import about
from dsagent.core import tasks
from dsagent.core.errors import DsagentError
from dsagent.entrypoints.serve.asking import Identified
from dsagent.entrypoints.serve.state import State, state_of
from dsagent.service.leases import list_leases
from dsagent.service.listing import df

log = logging.getLogger("dsagent")

router = APIRouter(tags=["health"])

STATES: tuple[tasks.State, ...] = ("pending", "running", "ready", "failed")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)

Family = CounterMetricFamily | GaugeMetricFamily


class HttpMetrics:
    """Counts an app's requests, and the seconds until each answer begins, by route: never by path. What is logged
    meanwhile says which request it is about.
    """

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = Counter(
            "dsagent_http_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "dsagent_http_request_seconds",
            "Seconds until the answer began; where the asker wished to wait, with that.",
            ("method", "route"),
            buckets=SECONDS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on and counts it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = perf_counter()
        asked = f"{scope['method']} {scope['path']}"

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                method = scope["method"] if scope.get("route") else "none"
                self._requests.labels(method, route, str(message["status"])).inc()
                self._seconds.labels(method, route).observe(perf_counter() - begun)
                log.debug("answered with %d", message["status"])
            await send(message)

        with about(request=asked), remembering():
            await self._app(scope, receive, counting)


class AgentCollector(Collector):
    """Reads an agent's state whenever it is asked."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterator[Family]:
        """See Collector.collect. What a root that cannot be read would say is left out."""
        state, agent = self._state, self._state.agent
        ready = agent.recovered and not state.draining
        yield _gauge("build_info", "Always 1.", 1, version=__version__, python=platform.python_version())
        yield _gauge("ready", "1 while tasks are taken: it has recovered and does not drain.", float(ready))
        yield _gauge("flights", "Datasets on their way now.", agent.running())
        yield _gauge("bandwidth_limit_bytes_per_second", "0 for no limit.", state.throttle.rate)
        yield from self._tasks()
        yield from self._counts()
        if agent.recovered:
            try:
                yield from self._root()
            except DsagentError:
                return

    def _tasks(self) -> Iterator[Family]:
        states = collections.Counter(self._state.agent.states().values())
        family = GaugeMetricFamily("dsagent_tasks", "Tasks by state.", labels=("state",))
        for state in STATES:
            family.add_metric((state,), states[state])
        yield family

    def _counts(self) -> Iterator[Family]:
        counts = self._state.agent.counts
        outcomes = CounterMetricFamily("dsagent_datasets", "Datasets made present, by outcome.", labels=("outcome",))
        for outcome in ("hit", "fetched", "updated"):
            outcomes.add_metric((outcome,), counts.outcomes[outcome])
        errors = CounterMetricFamily("dsagent_errors", "Datasets that could not be, by error.", labels=("type",))
        for kind, number in sorted(counts.errors.items()):
            errors.add_metric((kind,), number)
        yield from (outcomes, errors)
        yield _counter("listings", "Sources listed, or stores' manifests read.", counts.listings)
        yield _counter("fetched_bytes", "Plain bytes read from sources and stores.", counts.fetched_bytes)
        yield _counter("fetched_files", "Files read from sources and stores.", counts.fetched_files)
        yield _counter("evicted_versions", "Versions evicted.", counts.evicted)
        yield _counter("evicted_bytes", "What evicted versions took on the disk.", counts.evicted_bytes)

    def _root(self) -> Iterator[Family]:
        node = self._state.agent.node
        room = df(node)
        size = GaugeMetricFamily("dsagent_disk_bytes", "The root's bytes.", labels=("kind",))
        inodes = GaugeMetricFamily("dsagent_disk_inodes", "The root's inodes; 0: no limit.", labels=("kind",))
        for kind in ("used", "reserved", "free", "total"):
            size.add_metric((kind,), getattr(room, kind))
            inodes.add_metric((kind,), getattr(room, f"inodes_{kind}"))
        size.add_metric(("capacity",), room.capacity)
        yield from (size, inodes)
        yield _gauge("versions", "Versions on the disk.", len(node.catalog.versions()))
        yield _gauge("leases", "Living leases, those of tasks among them.", len(list_leases(node)))


def measure(state: State) -> None:
    """Lets the state's registry tell of the agent and its process; requests come to it by HttpMetrics."""
    state.registry.register(AgentCollector(state))
    ProcessCollector(registry=state.registry)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(request: Request, _who: Identified) -> Response:
    """Metrics in Prometheus' text format, for every asker who is known: a scraper needs no administrator's token."""
    return Response(generate_latest(state_of(request).registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _gauge(name: str, meaning: str, value: float, **labels: str) -> Family:
    family = GaugeMetricFamily(f"dsagent_{name}", meaning, labels=tuple(labels))
    family.add_metric(tuple(labels.values()), value)
    return family


def _counter(name: str, meaning: str, value: float) -> Family:
    return CounterMetricFamily(f"dsagent_{name}", meaning, value=value)
