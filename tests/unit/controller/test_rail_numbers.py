"""Numbers of rails: by subnet, given once."""

from collections.abc import Mapping

import pytest

from dsagent.core.cluster import CONFIG_MAPS
from dsagent.core.errors import ObjectConflict
from dsagent.entrypoints.controller.rail_numbers import RailNumbers, new_numbers
from tests.fakes.cluster import MemoryCluster

A, B, C = "10.1.0.0/24", "10.2.0.0/24", "10.10.0.0/24"


@pytest.mark.parametrize(
    ("known", "reported", "new"),
    [
        ({}, {B: None, A: None, C: None}, {"1": A, "2": B, "3": C}),  # by address, and not as text
        ({"1": B}, {A: None, B: None}, {"2": A}),
        ({"7": C}, {A: None, B: None}, {"8": A, "9": B}),
        ({"1": B}, {B: 1}, {}),
        ({}, {A: None, B: 4}, {"4": B, "5": A}),  # the object was lost, and a node still has a number
        ({"4": C}, {B: 4}, {"5": B}),
        ({"spare": A}, {B: None}, {"1": B}),
        ({}, {"fd00::/64": None, A: None}, {"1": A, "2": "fd00::/64"}),
    ],
)
def test_new_numbers(known: Mapping[str, str], reported: Mapping[str, int | None], new: Mapping[str, str]) -> None:
    assert new_numbers(known, reported) == new


def test_numbers_stay_when_nodes_go() -> None:
    cluster = MemoryCluster()
    numbers = RailNumbers(cluster, "system", "rails")
    numbers.look([((B, None),), ()])
    numbers.look([((A, None),)])
    numbers.look([((C, None), (B, 1))])
    assert cluster.get(CONFIG_MAPS, "rails", "system")["data"] == {"1": B, "2": A, "3": C}
    writes = cluster.writes
    numbers.look([((A, 2), (C, None))])
    assert cluster.writes == writes


def test_an_administrator_may_have_numbered_them_before() -> None:
    cluster = MemoryCluster()
    cluster.create(CONFIG_MAPS, {"metadata": {"name": "rails"}, "data": {"5": A}}, "system")
    RailNumbers(cluster, "system", "rails").look([((A, None), (B, None))])
    assert cluster.get(CONFIG_MAPS, "rails", "system")["data"] == {"5": A, "6": B}


def test_two_that_write_at_once_do_not_give_one_number_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster()
    first, second = (RailNumbers(cluster, "system", "rails") for _ in range(2))
    cluster.create(CONFIG_MAPS, {"metadata": {"name": "rails"}}, "system")
    old = cluster.get(CONFIG_MAPS, "rails", "system")
    first.look([((A, None),)])
    with monkeypatch.context() as stale:
        stale.setattr(cluster, "get", lambda *_: old)
        with pytest.raises(ObjectConflict):
            second.look([((B, None),)])
    second.look([((B, None),)])
    assert cluster.get(CONFIG_MAPS, "rails", "system")["data"] == {"1": A, "2": B}
