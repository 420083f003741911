"""When what happened to a pod, as the cluster's own events and logs say, in seconds after it was bound to its node."""

import re
from datetime import datetime
from typing import Any

from dsagent.contract import EVENT_CACHE_PULLING, EVENT_CACHE_READY
from tests.e2e.kube import Namespace
from tools.bench.timeline import Course, Span

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def course(namespace: Namespace, pod: str, title: str) -> Course:
    """What befell a pod whose main container has printed a line as soon as it ran."""
    events = [event for event in namespace.all("events") if event["involvedObject"]["name"] == pod]
    bound = _time(_only(events, "Scheduled"))
    spans = []
    pulled = [event for event in events if "Successfully pulled" in event["message"]]
    if pulled:
        (pull,) = pulled
        end = _time(pull) - bound
        spans.append(Span("image", end - _seconds(pull["message"]), end))
    if any(event["reason"] == EVENT_CACHE_PULLING for event in events):
        begin, end = (_time(_only(events, reason)) - bound for reason in (EVENT_CACHE_PULLING, EVENT_CACHE_READY))
        spans.append(Span("data", begin, end))
    first = namespace.run("logs", pod, "--container=main", "--timestamps").split()[0]
    return Course(title, sorted(spans, key=lambda span: span.begin), _seconds_of(first) - bound)


def _only(events: list[dict[str, Any]], reason: str) -> dict[str, Any]:
    (found,) = [event for event in events if event["reason"] == reason]
    return found


def _time(event: dict[str, Any]) -> float:
    """Kubelet's events know seconds only, the others microseconds."""
    return _seconds_of(event.get("eventTime") or event["firstTimestamp"])


def _seconds_of(written: str) -> float:
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", written)).timestamp()


def _seconds(message: str) -> float:
    """How long a pull took: `Successfully pulled image "x" in 1m2.5s (…)`."""
    (said,) = re.findall(r" in (\S+) \(", message)
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|m|s)", said))
