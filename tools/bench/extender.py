"""The scheduler plugin with a large cluster in its view: requests about 5,000 nodes, memory, and how long it starts."""

import http.client
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from tools.bench.setting import LONGEST_SECONDS, Setting
from tools.bench.timing import Result

RATE = 100  # requests a second, of both verbs together
SECONDS = 20
CLIENTS = 8
PORT = 19445
VERSION = f"xxh3:{1:032x}"
CLASS = "dsagent.io/gpu-roce1"
Object = Mapping[str, Any]


def extender(setting: Setting) -> Result:
    """Filter and prioritize for all nodes of a large cluster."""
    nodes, datasets, pods = (500, 100, 3_000) if setting.quick else (5_000, 1_000, 30_000)
    title = f"The scheduler plugin: {datasets:,} datasets, {pods:,} pods, {nodes:,} nodes in every request"
    result = Result("extender", title)
    names = [f"node-{number:05}" for number in range(nodes)]
    view = setting.build / "view.json"
    view.write_bytes(orjson.dumps(list(_cluster(names, datasets, pods))))
    with _serving(view) as (process, ready):
        result.note("view of a snapshot: from start to ready", ready, "s", 5)
        result.note("… CPU time of that", _cpu_seconds(process.pid), "s")
        chance = random.Random(2)
        bodies = [_body(turn, datasets, chance.sample(names, len(names))) for turn in range(200)]
        before = _cpu_seconds(process.pid)
        waits = _load(bodies)
        result.note("CPU time of a request", (_cpu_seconds(process.pid) - before) / (RATE * SECONDS) * 1000, "ms")
        for verb in ("filter", "prioritize"):
            for name, part in (("median", 500), ("p99", 990)):
                value = statistics.quantiles(waits[verb], n=1000)[part - 1] * 1000
                result.note(f"{verb} at {RATE} requests/s, {name}", value, "ms", 10 if part == 990 else None)
        result.note("memory (RSS)", _rss(process.pid) / 1e6, "MB", 500)
    view.unlink()
    return result


def _cluster(names: list[str], datasets: int, pods: int) -> Iterator[Object]:
    chance = random.Random(1)
    size = 150 * 10**9
    held: dict[str, list[Object]] = {name: [] for name in names}
    for number in range(datasets):
        dataset = f"d{number}"
        metadata = {"namespace": "research", "name": dataset}
        status = {"version": VERSION, "bytes": size, "files": 10**6}
        yield {"kind": "Dataset", "metadata": metadata, "status": status}
        allocated = {"bytes": size, "inodes": 10**6}
        version = {**metadata, "version": VERSION, "state": "Ready", "bytesPresent": size, "allocated": allocated}
        for name in chance.sample(names, 10):
            held[name].append(version)
    devices = [
        {"id": f"gpu{one}", "resource": CLASS, "numaNode": one // 4, "scores": {f"gpu{two}": 40 for two in range(8)}}
        for one in range(8)
    ]
    zones = [{"id": zone, "socket": zone, "cpus": f"{32 * zone}-{32 * zone + 31}"} for zone in (0, 1)]
    kubelet = {"topologyManager": "single-numa-node", "cpuManager": "static"}
    room = {"bytes": 4 * 10**12, "inodes": 10**9}
    for name in names:
        yield {"kind": "Node", "metadata": {"name": name}}
        cache = {"capacity": room, "free": room, "reserved": {}, "versions": held[name]}
        yield {"kind": "NodeDatasetCache", "metadata": {"name": name}, "status": cache}
        free = [{**zone, "freeCpus": zone["cpus"]} for zone in zones]
        topology = {"devices": devices, "zones": free, "kubelet": kubelet}
        yield {"kind": "NodeTopology", "metadata": {"name": name}, "status": topology}
    for number in range(pods):
        yield _pod(f"p{number}", chance.randrange(datasets), chance.choice(names))


def _pod(name: str, dataset: int, node: str = "", gpus: int = 0) -> Object:
    limits = {"cpu": "2", "memory": "1Gi", **({CLASS: str(gpus)} if gpus else {})}
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "research",
            "name": name,
            "uid": name,
            "annotations": {"dsagent.io/datasets": f"d{dataset}"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running" if node else "Pending"},
    }


def _body(turn: int, datasets: int, names: list[str]) -> bytes:
    return orjson.dumps({"Pod": _pod(f"new-{turn}", turn % datasets, gpus=2), "Nodes": None, "NodeNames": names})


@contextmanager
def _serving(view: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """The plugin on the last CPU, and the seconds until it was ready."""
    command = [sys.executable, "-m", "scheduler_plugin", "serve", "--view", str(view), "--listen", f"127.0.0.1:{PORT}"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        while not _ready():
            if process.poll() is not None or time.perf_counter() - begun > LONGEST_SECONDS:
                raise RuntimeError("the plugin did not become ready")
            time.sleep(0.02)
        yield process, time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait()


def _ready() -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _load(bodies: list[bytes]) -> dict[str, list[float]]:
    """Requests at RATE a second, whether those before are answered or not: how long each took from when it was due.
    As kube-scheduler does, both verbs in turn with the same names, which are in another order for each pod.
    """
    waits: dict[str, list[float]] = {"filter": [], "prioritize": []}
    failures: list[BaseException] = []
    begun = time.perf_counter() + 0.5

    def work(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
        try:
            for turn in range(first, RATE * SECONDS, CLIENTS):
                due = begun + turn / RATE
                time.sleep(max(0.0, due - time.perf_counter()))
                verb = ("filter", "prioritize")[turn % 2]
                body = bodies[turn // 2 % len(bodies)]
                connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                if answer.status != 200 or not answer.read():
                    raise RuntimeError(f"{verb} answered {answer.status}")
                if turn >= RATE:  # the first second is the warming up
                    waits[verb].append(time.perf_counter() - due)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            failures.append(error)
        finally:
            connection.close()

    workers = [threading.Thread(target=work, args=(first,)) for first in range(CLIENTS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return waits


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
