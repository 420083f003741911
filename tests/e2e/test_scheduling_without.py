"""kube-scheduler whose extender is away, or accepts and never answers; on nodes that exist in the API only."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsagent.core.cluster import PODS
from tests.support.waiting import until
from tools.control_plane import (
    NAMESPACE,
    ControlPlane,
    Scheduler,
    api_pod,
    control_plane,
    kube_scheduler,
    make_nodes,
    remove_pods,
)
from tools.servers import free_port

NODES = 120  # above 100 kube-scheduler would look at a part of them only
MARKED, UNMARKED = 3, 100


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(Path(tmp_path_factory.mktemp("plane"))) as made:
        make_nodes(made, NODES)
        yield made


class Silent:
    """Accepts and never answers. `asked`: how often."""

    def __init__(self) -> None:
        self.asked = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._server, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                self._open.append(self._server.accept()[0])
            except OSError:
                return
            self.asked += 1


@contextmanager
def scheduling(plane: ControlPlane, url: str) -> Iterator[Scheduler]:
    with kube_scheduler(plane, url, 5_000) as running:
        yield running
    remove_pods(plane)


def bound(plane: ControlPlane, scheduler: Scheduler, count: int, *, marked: bool) -> None:
    """So many pods are made and get nodes, each at its first attempt."""
    before = scheduler.attempts()
    pods = [api_pod(f"{marked}-{one}".lower(), datasets="coco", marked=marked) for one in range(count)]
    plane.create_all(PODS, pods, NAMESPACE)
    until(lambda: scheduler.attempts() == before + count)
    assert scheduler.attempts("unschedulable") == scheduler.attempts("error") == 0


def test_with_an_extender_that_is_away_all_pods_get_nodes(plane: ControlPlane) -> None:
    with scheduling(plane, f"http://127.0.0.1:{free_port()}") as scheduler:
        bound(plane, scheduler, MARKED, marked=True)
        bound(plane, scheduler, UNMARKED, marked=False)


def test_an_extender_that_never_answers_costs_marked_pods_its_timeout_and_others_nothing(plane: ControlPlane) -> None:
    silent = Silent()
    try:
        with scheduling(plane, silent.url) as scheduler:
            bound(plane, scheduler, UNMARKED, marked=False)
            assert silent.asked == 0
            bound(plane, scheduler, MARKED, marked=True)
            assert silent.asked >= MARKED
    finally:
        silent.close()
