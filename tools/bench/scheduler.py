"""kube-scheduler on thousands of nodes that exist in the API only: with the scheduler plugin, with an extender that
does nothing, and without any; pods that concern it, and pods that do not.
"""

import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from urllib.error import URLError

from dsagent.core.cluster import DATASETS, NODE_DATASET_CACHES, PODS
from tools.bench.setting import LONGEST_SECONDS, MEMORY, Setting
from tools.bench.timing import Line, Result, median
from tools.control_plane import (
    NAMESPACE,
    ControlPlane,
    api_pod,
    control_plane,
    kube_scheduler,
    make_nodes,
    remove_pods,
)
from tools.servers import free_port, running

HOLDERS = 4  # nodes that have a dataset
SIZE = 10**11
VERSION = f"xxh3:{1:032x}"
SLOW, FAST = 50, 5_000  # requests a second that the scheduler's client allows itself: the default, and no limit


def scheduler(setting: Setting) -> Result:
    """Pods a second, in turns."""
    nodes, pods, datasets = (200, 200, 10) if setting.quick else (2_000, 2_000, 50)
    result = Result("scheduler", f"kube-scheduler: {nodes:,} nodes, {pods:,} pods, all nodes scored")
    folder = MEMORY / "dsagent-bench-scheduler"
    shutil.rmtree(folder, ignore_errors=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        plane = stack.enter_context(control_plane(folder))
        make_data(plane, make_nodes(plane, nodes), datasets)
        ours, echo = stack.enter_context(plugin(plane)), stack.enter_context(_echo())
        run = partial(_run, plane, pods, datasets)
        turns: list[tuple[str, str | None, bool]] = [("ours, marked", ours, True), ("echo, marked", echo, True)]
        turns += [("ours, unmarked", ours, False), ("none, unmarked", None, False)]
        for turn in range(min(setting.rounds, 2)):
            for name, extender, marked in turns[turn % 2 * 2 :] + turns[: turn % 2 * 2]:
                setting.say(f"  round {turn + 1}: {name}")
                result.seconds.setdefault(f"{name}, QPS {FAST:,}", []).append(run(extender, FAST, marked=marked))
        for name, extender, marked in (turns[0], turns[3]):
            setting.say(f"  QPS {SLOW}: {name}")
            result.seconds.setdefault(f"{name}, QPS {SLOW}", []).append(run(extender, SLOW, marked=marked))
    rates = {name: pods / median(seconds) for name, seconds in result.seconds.items()}
    for name, rate in rates.items():
        result.note(f"{name}: pods/s", rate, "")
    for first, second, qps, bar in (
        ("ours, marked", "echo, marked", FAST, 0.8),
        ("ours, unmarked", "none, unmarked", FAST, 0.95),
        ("ours, marked", "none, unmarked", SLOW, 0.95),
    ):
        value = rates[f"{first}, QPS {qps:,}"] / rates[f"{second}, QPS {qps:,}"]
        result.lines.append(Line(f"pods/s: {first} / {second}, QPS {qps:,}", value, "x", bar, at_most=False))
    return result


def make_data(plane: ControlPlane, nodes: list[str], datasets: int) -> None:
    """Datasets d0, d1 and so on, each held by a few nodes: those of its number and after it."""
    for number in range(datasets):
        make_dataset(plane, f"d{number}")
    places = product(range(datasets), range(HOLDERS))
    for node, (number, _) in zip(nodes, places, strict=False):
        make_cache(plane, node, f"d{number}")


def make_dataset(plane: ControlPlane, name: str) -> None:
    """A Dataset whose source has been listed."""
    spec = {"source": "s3://bench/data"}
    metadata = {"name": name}
    body = {"apiVersion": DATASETS.api_version, "kind": DATASETS.kind, "metadata": metadata, "spec": spec}
    plane.cluster.create(DATASETS, body, NAMESPACE)
    status = {"status": {"version": VERSION, "bytes": SIZE, "files": 10}}
    plane.cluster.patch(DATASETS, name, status, NAMESPACE, subresource="status")


def make_cache(plane: ControlPlane, node: str, *held: str, free: int = 10**13) -> None:
    """What a node's agent would say: datasets that it has, and what is free."""
    body = {"apiVersion": NODE_DATASET_CACHES.api_version, "kind": NODE_DATASET_CACHES.kind, "metadata": {"name": node}}
    plane.cluster.create(NODE_DATASET_CACHES, body)
    amounts = {"bytes": SIZE, "bytesPresent": SIZE, "allocated": {"bytes": SIZE, "inodes": 11}}
    versions = [
        {"namespace": NAMESPACE, "name": name, "version": VERSION, "state": "Ready", "inUse": False, **amounts}
        for name in held
    ]
    room = {"bytes": free, "inodes": 10**9}
    status = {"capacity": room, "free": room, "reserved": {"bytes": 0, "inodes": 0}, "versions": versions}
    plane.cluster.patch(NODE_DATASET_CACHES, node, {"status": status}, subresource="status")


@contextmanager
def plugin(plane: ControlPlane) -> Iterator[str]:
    """The scheduler plugin, fed by the API server's watches, when its view is whole; its URL."""
    address = f"127.0.0.1:{free_port()}"
    line = [sys.executable, "-m", "scheduler_plugin", "serve", "--listen", address]
    with running(["env", f"KUBECONFIG={plane.kubeconfig}", *line], address):
        _await(f"http://{address}/readyz")
        yield f"http://{address}"


@contextmanager
def _echo() -> Iterator[str]:
    port = free_port()
    with running([sys.executable, "-m", "tools.bench.echo", str(port)], f"127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}"


def _await(url: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=10).close()  # noqa: S310 - our own server
        except URLError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"{url} does not become ready")


def _run(plane: ControlPlane, pods: int, datasets: int, extender: str | None, qps: int, *, marked: bool) -> float:
    """Seconds that it takes to bind pods which were there before the scheduler."""
    made = (
        api_pod(f"p-{number}", datasets=f"d{number % datasets}" if marked else "", marked=marked)
        for number in range(pods)
    )
    plane.create_all(PODS, made, NAMESPACE)
    try:
        with kube_scheduler(plane, extender, qps, patience="10s") as running_scheduler:
            begun = now = time.monotonic()
            count, deadline = 0, now + LONGEST_SECONDS
            while count < pods and now < deadline:
                time.sleep(0.05)
                if (count := running_scheduler.attempts()) == 0:
                    begun = time.monotonic()
                now = time.monotonic()
            if count < pods:
                raise RuntimeError(f"{count} of {pods} pods were bound within {LONGEST_SECONDS} s")
        return now - begun
    finally:
        remove_pods(plane)
