"""Following the objects of a cluster through whatever happens to it."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dsagent.adapters.kubernetes.watch import Heard, Watch
from dsagent.core.cluster import SECRETS, Object, Scope, metadata
from tests.fakes.cluster import MemoryCluster
from tests.support.clusters import secret

LONG = 60.0


class Seen(NamedTuple):
    name: str
    colour: str


def parse(found: Object) -> Seen:
    names = metadata(found)
    return Seen(names["name"], names["labels"]["colour"])


class Following:
    """A watch and what it has said."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.said: queue.Queue[Heard[Seen]] = queue.Queue()
        self.watch = Watch(cluster, SECRETS, parse, self.said.put, Scope("ns"), seconds=LONG)

    def next(self) -> tuple[str, str]:
        kind, seen = self.said.get(timeout=LONG)
        return kind, "" if seen is None else f"{seen.name} {seen.colour}"


@contextmanager
def following(cluster: MemoryCluster) -> Iterator[Following]:
    found = Following(cluster)
    found.watch.start()
    try:
        yield found
    finally:
        found.watch.stop()
        cluster.forget()  # wakes it up


def test_first_comes_what_is_there_then_what_happens() -> None:
    cluster = MemoryCluster()
    cluster.create(SECRETS, secret("a", colour="red"), "ns")
    with following(cluster) as found:
        assert [found.next(), found.next()] == [("added", "a red"), ("synced", "")]
        assert found.watch.synced
        assert found.watch.objects() == [Seen("a", "red")]
        cluster.create(SECRETS, secret("b", colour="blue"), "ns")
        cluster.patch(SECRETS, "a", {"metadata": {"labels": {"colour": "blue"}}}, "ns")
        cluster.delete(SECRETS, "b", "ns")
        assert [found.next() for _ in range(3)] == [("added", "b blue"), ("modified", "a blue"), ("deleted", "b blue")]
        assert found.watch.find("a", "ns") == Seen("a", "blue")
        assert found.watch.find("b", "ns") is None


def test_a_change_of_what_nobody_reads_is_not_heard() -> None:
    cluster = MemoryCluster()
    cluster.create(SECRETS, secret("a", colour="red"), "ns")
    with following(cluster) as found:
        assert [found.next(), found.next()] == [("added", "a red"), ("synced", "")]
        cluster.patch(SECRETS, "a", {"data": {"key": "bmV3"}}, "ns")
        cluster.create(SECRETS, secret("b", colour="blue"), "ns")
        assert found.next() == ("added", "b blue")


def test_what_happened_while_history_was_lost_is_found_by_listing_anew() -> None:
    cluster = MemoryCluster()
    for name in ("a", "b"):
        cluster.create(SECRETS, secret(name, colour="red"), "ns")
    with following(cluster) as found:
        assert [found.next()[0] for _ in range(3)] == ["added", "added", "synced"]
        cluster.set_down(True)
        cluster.down = False  # behind its back
        cluster.delete(SECRETS, "a", "ns")
        cluster.delete(SECRETS, "b", "ns")
        cluster.create(SECRETS, secret("b", colour="green"), "ns")
        cluster.create(SECRETS, secret("c", colour="red"), "ns")
        cluster.forget()
        said: list[tuple[str, str]] = []
        while not said or said[-1][0] != "synced":
            said.append(found.next())
        assert sorted(said[:-1]) == [
            ("added", "b green"),
            ("added", "c red"),
            ("deleted", "a red"),
            ("deleted", "b red"),
        ]


def test_an_api_that_is_away_is_asked_again_and_its_silence_is_known() -> None:
    cluster = MemoryCluster()
    cluster.down = True
    with following(cluster) as found:
        assert found.watch.silence() == float("inf")
        assert not found.watch.wait(0.01)
        cluster.set_down(False)
        assert found.next() == ("synced", "")
        assert found.watch.silence() < LONG
        cluster.set_down(True)
        cluster.set_down(False)
        cluster.create(SECRETS, secret("a", colour="red"), "ns")
        assert found.next() == ("added", "a red")


def test_what_cannot_be_understood_is_left_out() -> None:
    cluster = MemoryCluster()
    cluster.create(SECRETS, secret("odd"), "ns")
    with following(cluster) as found:
        assert found.next() == ("synced", "")
        cluster.patch(SECRETS, "odd", {"metadata": {"labels": {"colour": "red"}}}, "ns")
        assert found.next() == ("added", "odd red")
        cluster.patch(SECRETS, "odd", {"metadata": {"labels": {"colour": None}}}, "ns")
        assert found.next() == ("deleted", "odd red")
