"""`dsctl doctor --scheduler`: whether kube-scheduler asks the scheduler plugin, how often and with what result."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dsagent.adapters.kubernetes.schedulers import Replica, replicas_at, replicas_of
from dsagent.contract import RESOURCE_MARKER, SCHEDULER_PROFILE
from dsagent.core.cluster import PODS, Object, Scope, metadata
from dsagent.core.errors import ClusterUnreachable, NotPermitted
from dsagent.core.quantities import human_duration
from dsagent.service.results import Finding
from dsagent.wiring import open_cluster

GUIDE = "docs/guides/scheduler.md, Install"
LOG = "kube-scheduler's log says why it skips an extender"
# A pod that no scheduler has looked at for so long will not be looked at.
PATIENCE = timedelta(seconds=30)
# From kube-scheduler's last question about a pod to the time of its binding; clocks may differ by as much.
SLACK = timedelta(seconds=5)

KINDS = ("Node", "NodeDatasetCache", "NodeTopology", "Dataset", "ClusterDataset")
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """What a replica says of itself: samples by name and labels, what it still waits for, or why it does not answer."""

    name: str
    samples: Mapping[tuple[str, str], float] = field(default_factory=dict)
    waits_for: str = ""
    problem: str = ""

    def total(self, name: str, label: str = "") -> float:
        """The sum of all samples of a name that have a label, written as `verb="filter"`."""
        return sum(value for (found, labels), value in self.samples.items() if found == name and label in labels)


@dataclass(frozen=True)
class ProfilePod:
    """A pod that names our profile. `bound`: when it got its node; `looked_at`: whether any scheduler has tried."""

    name: str
    marked: bool
    made: datetime
    bound: datetime | None
    looked_at: bool


def examine(urls: Sequence[str]) -> list[Finding]:
    """The checks; raises ClusterUnreachable, NotPermitted, UsageError."""
    if urls:
        return findings([report_of(one) for one in replicas_at(urls)], None, datetime.now(UTC))
    cluster = open_cluster("dsctl")
    reports = [report_of(one) for one in replicas_of(cluster)]
    pods = None
    try:
        named = cluster.listing(PODS, Scope(fields=f"spec.schedulerName={SCHEDULER_PROFILE}")).items
        pods = [profile_pod(one) for one in named]
    except NotPermitted:
        pass  # who may not see all pods is told less
    return findings(reports, pods, datetime.now(UTC))


def report_of(replica: Replica) -> Report:
    """What a replica says."""
    try:
        ready, text = replica.get("/readyz").decode(), replica.get("/metrics").decode()
    except (ClusterUnreachable, UnicodeDecodeError) as error:
        return Report(replica.name, problem=str(error))
    samples = {(name, labels): float(value) for name, labels, value in _SAMPLE.findall(text)}
    if ("process_start_time_seconds", "") not in samples:
        return Report(replica.name, problem=f"it answered {text[:200].strip()!r}")
    return Report(replica.name, samples, "" if ready.strip() == "ok" else ready.strip())


def profile_pod(document: Object) -> ProfilePod:
    """A pod, as far as it matters here."""
    conditions = {one["type"]: one for one in (document.get("status") or {}).get("conditions") or ()}
    scheduled = conditions.get("PodScheduled")
    bound = scheduled["lastTransitionTime"] if scheduled and scheduled["status"] == "True" else None
    containers = document["spec"]["containers"]
    return ProfilePod(
        f"{metadata(document)['namespace']}/{metadata(document)['name']}",
        any(RESOURCE_MARKER in ((one.get("resources") or {}).get("requests") or {}) for one in containers),
        datetime.fromisoformat(metadata(document)["creationTimestamp"]),
        datetime.fromisoformat(bound) if bound else None,
        scheduled is not None,
    )


def findings(reports: Sequence[Report], pods: Sequence[ProfilePod] | None, now: datetime) -> list[Finding]:
    """What is right and what is not; `pods` None: they cannot be seen."""
    answering = [one for one in reports if not one.problem]
    if not answering:
        return [_replicas(reports)]
    checks = [_replicas(reports), _view(answering), _settings(answering), _asked(answering, now)]
    if pods is not None:
        checks += [_called(answering, pods), _looked_at(pods, now)]
    return [*checks, _results(answering)]


def _replicas(reports: Sequence[Report]) -> Finding:
    silent = [f"{one.name}: {one.problem}" for one in reports if one.problem]
    detail = f"{len(reports) - len(silent)} of {len(reports)} answer"
    if not silent:
        return Finding("replicas", "ok", detail, "")
    advice = "kubectl get pods of the release; you need pods/proxy there (Role dsagent-admin)"
    return Finding(
        "replicas", "warn" if len(silent) < len(reports) else "fail", f"{detail}; {'; '.join(silent)}", advice
    )


def _view(reports: Sequence[Report]) -> Finding:
    late = [f"{one.name}: {one.waits_for}" for one in reports if one.waits_for]
    if late:
        return Finding(
            "view", "fail", "; ".join(late), "its log says what the API server refuses; it refuses no node until"
        )
    first = reports[0]
    known = {kind: first.total("dsagent_scheduler_objects", f'kind="{kind}"') for kind in KINDS}
    counts = ", ".join(f"{number:g} {kind}" for kind, number in known.items())
    if not known["NodeDatasetCache"]:
        return Finding("view", "warn", counts, "no node says what it holds: see that the agents run")
    return Finding("view", "ok", counts, "")


def _settings(reports: Sequence[Report]) -> Finding:
    bad = [one.name for one in reports if not one.total("dsagent_scheduler_settings_valid")]
    if bad:
        return Finding(
            "settings", "fail", f"not usable in {', '.join(bad)}, which goes on with those before", "see its log"
        )
    return Finding("settings", "ok", "in use as they are written", "")


def _asked(reports: Sequence[Report], now: datetime) -> Finding:
    filters, scores = (_count(reports, verb) for verb in ("filter", "prioritize"))
    hours = max(1e-6, max((now - _started(one)).total_seconds() for one in reports) / 3600)
    if not filters:
        advice = f"create a pod with dsagent.io/datasets; if nothing comes then, see {GUIDE}"
        return Finding("questions", "warn", f"kube-scheduler has asked nothing for {_ago(hours)}", advice)
    seconds = sum(one.total("dsagent_scheduler_request_seconds_sum") for one in reports) / max(1, filters + scores)
    last = human_duration(max(1.0, (now - _last(reports)).total_seconds()))
    detail = (
        f"asked {filters:g} times which nodes are possible and {scores:g} times for scores in {_ago(hours)}, "
        f"{filters / hours:.3g} pods an hour, last {last} ago; {1000 * seconds:.2g} ms each"
    )
    return Finding("questions", "ok", detail, "")


def _called(reports: Sequence[Report], pods: Sequence[ProfilePod]) -> Finding:
    since = _last(reports) + SLACK
    marked = [one for one in pods if one.marked]
    without = [one.name for one in marked if one.bound and one.bound > since]
    if without:
        advice = f"see that the extender of {GUIDE} is in its file, its URL and CA right, and the marker managed; {LOG}"
        return Finding("extender", "fail", f"{_pods(without)} got a node without it", advice)
    unmarked = [one.name for one in pods if not one.marked]
    if unmarked:
        advice = f"it is not asked about them; let their containers request {RESOURCE_MARKER}: 1"
        return Finding("extender", "warn", f"{_pods(unmarked)} of the profile without the marker", advice)
    return Finding("extender", "ok", f"no pod got a node without it; {len(marked)} pods have the marker", "")


def _looked_at(pods: Sequence[ProfilePod], now: datetime) -> Finding:
    left = [one.name for one in pods if not one.looked_at and not one.bound and now - one.made > PATIENCE]
    if left:
        advice = f"no running kube-scheduler has this profile, or the one that has it is down: {GUIDE}"
        return Finding("profile", "fail", f"{_pods(left)} of {SCHEDULER_PROFILE} that no scheduler looks at", advice)
    waiting = [one.name for one in pods if not one.bound]
    if waiting:
        advice = "kubectl describe pod says what was missing, dsctl explain POD what each node is worth"
        return Finding("profile", "ok", f"{_pods(waiting)} of {SCHEDULER_PROFILE} wait for room", advice)
    return Finding("profile", "ok", f"no pod of {SCHEDULER_PROFILE} waits", "")


def _results(reports: Sequence[Report]) -> Finding:
    failures = {
        labels: value
        for one in reports
        for (name, labels), value in one.samples.items()
        if name == "dsagent_scheduler_failures_total" and value
    }
    refused = sum(one.total("dsagent_scheduler_refused_nodes_total") for one in reports)
    if failures:
        named = ", ".join(f"{labels.replace(chr(34), '')}: {value:g}" for labels, value in sorted(failures.items()))
        return Finding("results", "warn", f"parts that could not be had: {named}", "its log has the reasons")
    return Finding("results", "ok", f"every question was answered whole; {refused:g} nodes were refused", "")


def _count(reports: Sequence[Report], verb: str) -> float:
    return sum(one.total("dsagent_scheduler_request_seconds_count", f'verb="{verb}"') for one in reports)


def _started(report: Report) -> datetime:
    return datetime.fromtimestamp(report.total("process_start_time_seconds"), UTC)


def _last(reports: Sequence[Report]) -> datetime:
    """When it was last asked; before the first time when it was started."""
    asked = [one.total("dsagent_scheduler_last_request_timestamp_seconds", 'verb="filter"') for one in reports]
    return max(datetime.fromtimestamp(max(asked), UTC), *map(_started, reports))


def _ago(hours: float) -> str:
    return human_duration(max(1.0, hours * 3600))


def _pods(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
    return f"{len(names)} pod{'s' if len(names) > 1 else ''} ({shown})"
