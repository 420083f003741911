"""Writes the node's NodeTopology when it differs, asks for numbers of rails, and says who is in the plugin's way."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from gpu_topology.api import Topology
from gpu_topology.cluster.client import NOT_FOUND, ApiError, ApiServer, Object, name_in_path
from gpu_topology.cluster.numbers import read_numbers
from gpu_topology.cluster.policies import Policies
from gpu_topology.cluster.status import Document, status_of
from gpu_topology.cluster.usage import Usage, read_usage
from gpu_topology.device_plugin.resource import Resource
from gpu_topology.errors import TopologyError

API_VERSION = "dsagent.io/v1alpha1"
KIND = "NodeTopology"
PAUSE_SECONDS = 1.0  # between two looks at what pods have
FIRST_WAIT, LONGEST_WAIT = 2.0, 60.0  # before the API is asked again for what it did not have or do
POLICIES_SECONDS = 300.0  # kubelet's configuration is read again after this time, and when it starts anew
ANEW_SECONDS = 600.0  # the object is written again after this time: somebody may have removed it
STALE_SECONDS = 30.0  # what kubelet said so long ago is no ground for foretelling what it will say
END_SECONDS = 5.0
READY, SERVED_BY_OTHERS = "Ready", "DevicesServedByOthers"

_OBJECTS = f"/apis/{API_VERSION}/nodetopologies"
_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_log = logging.getLogger(__name__)


class Found(Protocol):
    """What the plugin has found, as it changes; `numbers` are the cluster's, by subnet, and are set from here."""

    numbers: Mapping[str, int] | None

    @property
    def topology(self) -> Topology | None: ...
    @property
    def in_the_way(self) -> str: ...


@dataclass(frozen=True)
class Place:
    """Which node this is, where its kubelet is asked, and which object has the numbers of rails."""

    node: str
    pod_resources: Path
    policies: Callable[[], Policies]
    numbers_namespace: str
    numbers_name: str


class Report:
    """A thread that writes for `found`, woken by `tell`; `wake` lets the plugin look again."""

    def __init__(self, api: ApiServer, place: Place, found: Found, wake: Callable[[], object]) -> None:
        self._api = api
        self._place = place
        self._found = found
        self._wake = wake
        self._resources: Sequence[Resource] = ()
        self._told = threading.Event()
        self._stopped = threading.Event()
        self._written: Document | None = None
        self._written_at = 0.0
        self._conditions: tuple[Document, ...] = ()
        self._usage: Usage | None = None
        self._usage_at = -math.inf
        self._policies: Policies | None = None
        self._policies_due = 0.0
        self._asking = _Waiting()  # for policies
        self._numbers = _Waiting()
        self._writing = _Waiting()
        self._said: dict[str, str] = {}
        self._event = ""
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)

    @contextmanager
    def written(self) -> Iterator[None]:
        """As long as the block lasts; then it is said that nothing is served any more."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._told.set()
            self._thread.join(END_SECONDS)

    def tell(self, resources: Sequence[Resource]) -> None:
        """What is served now."""
        self._resources = resources
        self._told.set()

    def allocated(self) -> None:
        """Kubelet has handed something out."""
        self._told.set()

    def restarted(self) -> None:
        """Kubelet has started anew, perhaps with other policies."""
        self._policies_due = 0.0

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._told.wait()
            self._told.clear()
            try:
                self._round()
            except Exception:  # noqa: BLE001 - whatever happens here, devices go on to be served
                _log.exception("reporting of the node")
            self._stopped.wait(PAUSE_SECONDS)
        if self._written is not None:
            self._tried("write", lambda: self._write(_ready("False", "Ending", "the device plugin was told to end")))

    def _round(self) -> None:
        topology = self._found.topology
        if topology is None:
            return
        self._read_policies()
        self._ask_for_numbers(topology)
        self._say_who_is_in_the_way()
        self._read_usage()
        is_fresh = time.monotonic() < self._usage_at + STALE_SECONDS
        status = status_of(topology, self._resources, self._usage, self._policies if is_fresh else None)
        rival = self._found.in_the_way
        ready = (
            _ready("False", SERVED_BY_OTHERS, rival) if rival else _ready("True", "Serving", "the device plugin serves")
        )
        is_new = status != self._written or self._differs(ready) or time.monotonic() > self._written_at + ANEW_SECONDS
        if is_new and self._writing.is_due():
            done = self._tried("write", lambda: self._write(ready, status))
            self._writing.tried(is_over=done)

    def _read_usage(self) -> None:
        try:
            self._usage = read_usage(self._place.pod_resources)
        except OSError as error:
            self._say("usage", f"cannot ask {self._place.pod_resources} what pods have: {error}")
        else:
            self._usage_at = time.monotonic()
            self._said.pop("usage", None)

    def _read_policies(self) -> None:
        if time.monotonic() < self._policies_due or not self._asking.is_due():
            return
        done = self._tried("policies", self._take_policies)
        self._asking.tried(is_over=done)
        if done:
            self._policies_due = time.monotonic() + POLICIES_SECONDS

    def _take_policies(self) -> None:
        self._policies = self._place.policies()

    def _ask_for_numbers(self, topology: Topology) -> None:
        """A number never changes, so they are read only while one is missing."""
        if all(rail.number is not None for rail in topology.rails) or not self._numbers.is_due():
            return
        before = self._found.numbers
        done = self._tried("numbers", self._take_numbers)
        is_news = done and self._found.numbers != before
        self._numbers.tried(is_over=is_news)
        if is_news:
            self._wake()

    def _take_numbers(self) -> None:
        self._found.numbers = read_numbers(self._api, self._place.numbers_namespace, self._place.numbers_name)

    def _say_who_is_in_the_way(self) -> None:
        rival = self._found.in_the_way
        if rival != self._event and (not rival or self._tried("event", lambda: self._make_event(rival))):
            self._event = rival

    def _make_event(self, text: str) -> None:
        node = self._place.node
        self._api.create(
            _EVENTS,
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"generateName": f"{node}."[:200], "namespace": "default"},
                "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "type": "Warning",
                "reason": SERVED_BY_OTHERS,
                "action": "Serving",
                "note": text[:1024],
                "reportingController": "dsagent.io/gpu-topology",
                "reportingInstance": node[:128],
                "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},  # as kubelet writes it
            },
        )

    def _differs(self, ready: Document) -> bool:
        old = next((one for one in self._conditions if one["type"] == READY), {})
        return any(old.get(name) != value for name, value in ready.items())

    def _write(self, ready: Document, status: Document | None = None) -> None:
        """The object with its owner first, if it may be missing or another's."""
        if self._written is None:
            self._make()
        status = self._written if status is None else status
        conditions = self._with_time(ready)
        path = f"{_OBJECTS}/{name_in_path(self._place.node)}/status"
        body = self._body() | {"status": {**(status or {}), "conditions": conditions}}
        try:
            self._api.apply(path, body)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            self._make()
            self._api.apply(path, body)
        self._written, self._conditions, self._written_at = status, tuple(conditions), time.monotonic()

    def _make(self) -> None:
        """Owned by its Node, so that it goes with it."""
        node = self._api.get(f"/api/v1/nodes/{name_in_path(self._place.node)}")
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._place.node, "uid": node["metadata"]["uid"]}
        body = self._body()
        body["metadata"]["ownerReferences"] = [owner]
        found = self._api.apply(f"{_OBJECTS}/{name_in_path(self._place.node)}", body)
        self._conditions = _conditions_of(found)

    def _body(self) -> Document:
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self._place.node}}

    def _with_time(self, ready: Document) -> list[Document]:
        """The condition with when it became so: a change of the reason alone is none."""
        old = next((one for one in self._conditions if one["type"] == READY), {})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        since = old.get("lastTransitionTime", now) if old.get("status") == ready["status"] else now
        return [{**ready, "lastTransitionTime": since}]

    def _tried(self, subject: str, action: Callable[[], None]) -> bool:
        """Whether it was done; its trouble is said once."""
        try:
            action()
        except TopologyError as error:
            self._say(subject, str(error))
            return False
        self._said.pop(subject, None)
        return True

    def _say(self, subject: str, text: str) -> None:
        if self._said.get(subject) != text:
            _log.warning("%s", text)
        self._said[subject] = text


class _Waiting:
    """When to try again: later each time, and not all nodes at once."""

    def __init__(self) -> None:
        self._wait = FIRST_WAIT
        self._due = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def tried(self, *, is_over: bool) -> None:
        self._wait = FIRST_WAIT if is_over else min(LONGEST_WAIT, 2 * self._wait)
        wait = 0.0 if is_over else self._wait * random.uniform(0.5, 1)  # noqa: S311 - it is no secret
        self._due = time.monotonic() + wait


def _ready(status: str, reason: str, message: str) -> Document:
    return {"type": READY, "status": status, "reason": reason, "message": message}


def _conditions_of(found: Object) -> tuple[Document, ...]:
    status: Mapping[str, Any] = found.get("status") or {}
    return tuple(status.get("conditions") or ())
