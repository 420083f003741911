"""dsctl doctor --scheduler: what it makes of what replicas and pods say."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from dsagent.adapters.kubernetes.schedulers import Replica
from dsagent.core.errors import ClusterUnreachable
from dsagent.entrypoints.dsctl.scheduler import ProfilePod, Report, findings, profile_pod, report_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR_AGO = NOW - timedelta(hours=1)


def metrics(asked: int = 0, last: datetime | None = None, valid: int = 1, caches: int = 2, more: str = "") -> str:
    lines = [
        "# HELP dsagent_scheduler_objects Objects in the view.",
        f"process_start_time_seconds {HOUR_AGO.timestamp()}",
        f"dsagent_scheduler_settings_valid {valid}.0",
        f'dsagent_scheduler_objects{{kind="NodeDatasetCache"}} {caches}.0',
        f'dsagent_scheduler_request_seconds_count{{verb="filter"}} {asked}.0',
        f'dsagent_scheduler_request_seconds_sum{{verb="filter"}} {asked / 1000}',
        more,
    ]
    if last:
        name = "dsagent_scheduler_last_request_timestamp_seconds"
        lines.append(f'{name}{{verb="filter"}} {last.timestamp()!r}')
    return "\n".join(lines) + "\n"


def report(ready: str = "ok\n", **told: object) -> Report:
    texts = {"/readyz": ready, "/metrics": metrics(**told)}  # type: ignore[arg-type]
    return report_of(Replica("r", lambda path: texts[path].encode()))


def away(_: str) -> bytes:
    raise ClusterUnreachable("ask", "scheduler plugin r2", "refused")


def pod(
    made: datetime = HOUR_AGO, bound: datetime | None = None, *, marked: bool = True, seen: bool = True
) -> ProfilePod:
    return ProfilePod("research/p", marked, made, bound, seen)


def statuses(reports: list[Report], pods: list[ProfilePod] | None = None) -> dict[str, str]:
    found = findings(reports, pods, NOW)
    assert all(one.advice for one in found if one.status != "ok")
    return {one.name: one.status for one in found}


WELL = report(asked=30, last=NOW)


def test_all_is_well() -> None:
    found = findings([WELL, WELL], [pod(bound=NOW), pod()], NOW)
    assert {one.status for one in found} == {"ok"}
    asked = next(one for one in found if one.name == "questions")
    assert asked.detail.startswith("asked 60 times which nodes are possible and 0 times for scores")
    assert "60 pods an hour" in asked.detail
    assert "1 ms each" in asked.detail


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (lambda: statuses([report_of(Replica("r2", away))]), {"replicas": "fail"}),
        (lambda: statuses([WELL, report_of(Replica("r2", away))]), {"replicas": "warn"}),
        (lambda: statuses([report_of(Replica("r", lambda _: b"forbidden"))]), {"replicas": "fail"}),
        (lambda: statuses([report("not yet listed: Node\n", asked=1, last=NOW)]), {"view": "fail"}),
        (lambda: statuses([report(asked=1, last=NOW, caches=0)]), {"view": "warn"}),
        (lambda: statuses([WELL, report(valid=0)]), {"settings": "fail"}),
        (lambda: statuses([report()], []), {"questions": "warn"}),
        (lambda: statuses([report()], [pod(bound=NOW)]), {"questions": "warn", "extender": "fail"}),
        (lambda: statuses([report(asked=1, last=HOUR_AGO)], [pod(bound=NOW)]), {"extender": "fail"}),
        (lambda: statuses([report(asked=1, last=NOW)], [pod(bound=NOW)]), {}),
        (lambda: statuses([WELL], [pod(bound=NOW, marked=False)]), {"extender": "warn"}),
        (lambda: statuses([WELL], [pod(seen=False)]), {"profile": "fail"}),
        (lambda: statuses([WELL], [pod(made=NOW, seen=False)]), {}),
        (
            lambda: statuses([report(asked=1, last=NOW, more='dsagent_scheduler_failures_total{part="rail"} 2.0')]),
            {"results": "warn"},
        ),
    ],
    ids=lambda one: "" if callable(one) else "-".join(one) or "well",
)
def test_what_is_wrong(found: Callable[[], dict[str, str]], wrong: dict[str, str]) -> None:
    assert {name: status for name, status in found().items() if status != "ok"} == wrong


def test_a_pod_as_the_api_has_it() -> None:
    container = {"resources": {"requests": {"dsagent.io/scheduled": "1"}}}
    document = {
        "metadata": {"namespace": "research", "name": "p", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {"containers": [container]},
    }
    assert profile_pod(document) == pod(seen=False)
    condition = {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    assert profile_pod({**document, "status": {"conditions": [condition]}}) == pod()
    condition["status"] = "True"
    assert profile_pod({**document, "status": {"conditions": [condition]}}) == pod(bound=NOW)
