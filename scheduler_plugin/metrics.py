"""/metrics: what Prometheus reads, in base units."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


class Metrics:
    """Counts what is asked and answered."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._seconds = Histogram(
            "dsagent_scheduler_request_seconds",
            "Seconds to decide, without reading the request and sending the answer.",
            ("verb",),
            buckets=SECONDS,
            registry=registry,
        )
        self._last = Gauge(
            "dsagent_scheduler_last_request_timestamp_seconds", "When it was last asked.", ("verb",), registry=registry
        )
        self._failed = Counter(
            "dsagent_scheduler_failures",
            "Requests that were none, and terms and checks that could not be had, by name.",
            ("verb", "part"),
            registry=registry,
        )
        self._refused = Counter("dsagent_scheduler_refused_nodes", "Nodes that filter refused.", registry=registry)
        self._objects = Gauge("dsagent_scheduler_objects", "Objects in the view.", ("kind",), registry=registry)
        self._settings = Gauge(
            "dsagent_scheduler_settings_valid", "0 while the settings' file is not usable.", registry=registry
        )
        self._settings.set(1)

    def answered(self, verb: str, seconds: float) -> None:
        """A request was."""
        self._seconds.labels(verb).observe(seconds)
        self._last.labels(verb).set_to_current_time()

    def failed(self, verb: str, part: str) -> None:
        """A part of a request could not be had."""
        self._failed.labels(verb, part).inc()

    def refused(self, nodes: int) -> None:
        """So many nodes were."""
        self._refused.inc(nodes)

    def settings_valid(self, valid: bool) -> None:
        """Whether the settings' file is usable."""
        self._settings.set(valid)

    def text(self, objects: Mapping[str, int]) -> bytes:
        """All of it, as Prometheus reads it."""
        for kind, number in objects.items():
            self._objects.labels(kind).set(number)
        return generate_latest(self._registry)
