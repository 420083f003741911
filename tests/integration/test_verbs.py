"""The two implementations of the verbs, on one root: what one answers the other does, results and errors alike."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from dsagent.adapters.agent_address import Access, parse_address
from dsagent.adapters.agent_client import AgentVerbs
from dsagent.adapters.agent_http import AgentHttp
from dsagent.core.errors import DsagentError
from dsagent.core.ports import Location
from dsagent.entrypoints.documents import as_document
from dsagent.service.diff import Side
from dsagent.service.origins import CacheRequest
from dsagent.service.pack import PackRequest, pack
from dsagent.service.verbs import LocalVerbs, Verbs
from dsagent.wiring import Wiring
from tests.support.agents import agent
from tests.support.nodes import NoMeter, node_at
from tests.support.trees import make_files

UNKNOWN = f"xxh3:{'0' * 32}"


class Both(NamedTuple):
    """The verbs done here and by an agent, on the same root; `places` stand in the calls."""

    here: Verbs
    there: Verbs
    places: dict[str, str]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """imgs is here with two versions, under a lease; coco and a store are elsewhere."""
    folder = tmp_path_factory.mktemp("verbs")
    for name, seed in (("imgs", 1), ("coco", 2)):
        make_files(folder / name, 20, directories=2, seed=seed)
    (folder / "imgs" / "\udcff").write_text("odd")
    store = folder / "store"
    pack(Wiring(), NoMeter(), 0, PackRequest(Location(str(folder / "coco")), Location(str(store))))
    os.mkfifo(folder / "coco" / "pipe")
    with agent(folder / "root", "--keep-free", "0") as running:
        there = AgentVerbs(AgentHttp(Access(parse_address(running.address)), 30), NoMeter(), False, {})
        first = there.cache(CacheRequest(Location(str(folder / "imgs"))))
        (folder / "imgs" / "new").write_text("new")
        there.cache(CacheRequest(Location(str(folder / "imgs"))))
        there.add_lease("imgs", "me", 3600)
        there.add_lease("imgs", "you", 3600)
        places = {name: str(folder / name) for name in ("imgs", "coco", "store", "none")}
        yield Both(LocalVerbs(node_at(folder / "root")), there, {**places, "first": first.version})
        there.close()


class Asked(NamedTuple):
    """One of the two, and the places."""

    verbs: Verbs
    places: dict[str, str]


def outcome(call: Callable[[Asked], Any], asked: Asked) -> Any:
    """What a call gives, without what may differ: the time it took."""
    try:
        found = as_document(call(asked))
    except DsagentError as error:
        # The two roots lie on one disk, whose free space changes while they are asked.
        return type(error), re.sub(r"\d+", "N", error.cause), error.hint, error.exit_code, error.paths
    return {**found, "seconds": 0} if isinstance(found, dict) else found


def request(places: dict[str, str], place: str, **more: Any) -> CacheRequest:
    return CacheRequest(Location(places[place]), **more)


CALLS: dict[str, Callable[[Asked], Any]] = {
    "root": lambda a: a.verbs.root,
    "ls": lambda a: [dataclasses.replace(one, last_used=one.published) for one in a.verbs.ls()],
    "path": lambda a: a.verbs.path("imgs"),
    "path of a version": lambda a: a.verbs.path(f"imgs@{a.places['first']}"),
    "path of none": lambda a: a.verbs.path("coco"),
    "path of an unknown version": lambda a: a.verbs.path(f"imgs@{UNKNOWN}"),
    "path of no name": lambda a: a.verbs.path("No Name"),
    "df": lambda a: dataclasses.replace(a.verbs.df(), capacity=0, free=0, inodes_free=0),
    "plan of a hit": lambda a: a.verbs.plan_cache(request(a.places, "imgs")),
    "plan of a store": lambda a: a.verbs.plan_cache(request(a.places, "store")),
    "plan of what is not there": lambda a: a.verbs.plan_cache(request(a.places, "none")),
    "plan of what cannot be kept": lambda a: a.verbs.plan_cache(request(a.places, "coco")),
    "plan of no version": lambda a: a.verbs.plan_cache(request(a.places, "store", version="1")),
    "a hit": lambda a: a.verbs.cache(request(a.places, "imgs")),
    "a hit by version": lambda a: a.verbs.cache(request(a.places, "imgs", version=a.places["first"])),
    "what is not there": lambda a: a.verbs.cache(request(a.places, "none")),
    "what cannot be kept": lambda a: a.verbs.cache(request(a.places, "coco")),
    "a version that a store lacks": lambda a: a.verbs.cache(request(a.places, "store", version=UNKNOWN)),
    "the name of another source": lambda a: a.verbs.cache(request(a.places, "store", name="imgs")),
    "no name": lambda a: a.verbs.cache(request(a.places, "imgs", name="No Name")),
    "verify": lambda a: a.verbs.verify("imgs", False, ()),
    "verify of none": lambda a: a.verbs.verify("coco", False, ()),
    "repair of none": lambda a: a.verbs.verify("coco", True, ()),
    "evict of none": lambda a: a.verbs.evict("coco", False, False),
    "evict in use": lambda a: a.verbs.evict("imgs", False, False),
    "evict by force": lambda a: a.verbs.evict("imgs", True, True),
    "evict too much": lambda a: a.verbs.evict_need(1 << 50, True).evicted,
    "evict nothing": lambda a: a.verbs.evict_need(1, False),
    "diff of two versions": lambda a: a.verbs.diff(Side(f"imgs@{a.places['first']}"), Side("imgs")),
    "diff with its source": lambda a: a.verbs.diff(Side("imgs"), Side(a.places["imgs"])),
    "diff with a store": lambda a: a.verbs.diff(Side(a.places["store"]), Side("imgs")),
    "diff with nothing": lambda a: a.verbs.diff(Side("imgs"), Side(a.places["none"])),
    "diff with what is not here": lambda a: a.verbs.diff(Side("imgs"), Side("coco")),
    "diff with an unknown version": lambda a: a.verbs.diff(Side("imgs"), Side(f"{a.places['store']}@{UNKNOWN}")),
    "doctor": lambda a: [(one.name, one.status, one.advice) for one in a.verbs.doctor(False)],
    "leases": lambda a: list(a.verbs.leases()),
    "a lease on none": lambda a: a.verbs.add_lease("coco", "me", 60),
    "a lease of nobody": lambda a: a.verbs.add_lease("imgs", "", 60),
    "a lease for no time": lambda a: a.verbs.add_lease("imgs", "me", float("nan")),
    "renewing one of several": lambda a: a.verbs.renew_lease("imgs", None, 60),
    "renewing none": lambda a: a.verbs.renew_lease("imgs", "nobody", 60),
    "releasing none": lambda a: a.verbs.release_lease("0123456789abcdef", None),
    "releasing of a dataset and version": lambda a: a.verbs.release_lease(f"imgs@{UNKNOWN}", "me"),
    "holding none": lambda a: a.verbs.hold("coco", "me"),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_answer_alike(both: Both, name: str) -> None:
    here, there = (outcome(CALLS[name], Asked(verbs, both.places)) for verbs in (both.here, both.there))
    assert there == here


@pytest.mark.parametrize("by_agent", [False, True])
def test_a_lease_of_a_process(both: Both, by_agent: bool) -> None:
    verbs, other = (both.there, both.here) if by_agent else (both.here, both.there)
    lease = verbs.hold("imgs", "a test")
    assert lease.info in other.leases()
    with pytest.raises(DsagentError, match="a test"):
        other.evict("imgs", True, True)
    lease.release()
    assert lease.info not in other.leases()
    held = verbs.find_or_cache("imgs", (), "a test")
    assert (held.dataset, held.path) == ("imgs", other.path("imgs"))
    held.lease.release()
    result, lease = verbs.cache_and_hold(request(both.places, "imgs"), "a test")
    assert (result.outcome, result.path, lease.info in other.leases()) == ("hit", held.path, True)
    lease.release()
