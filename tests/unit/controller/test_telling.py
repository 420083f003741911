"""What people are told of a Dataset's life."""

from datetime import timedelta
from typing import Any

from dsagent.api.v1alpha1.dataset import DatasetStatus
from dsagent.entrypoints.controller.rules import status_of
from dsagent.entrypoints.controller.telling import ONCE_IN, Teller, news_of, news_of_end, some
from tests.unit.controller.test_rules import NEW, NOW, copy, dataset, nodes

HOUR = timedelta(hours=1)


def told(before: DatasetStatus, after: DatasetStatus) -> list[tuple[str, str]]:
    return [(one.reason, one.note) for one in news_of(before, after)]


def test_what_becomes_available_and_what_is_no_more() -> None:
    nowhere = status_of(dataset(), nodes("a"), [], NOW)
    here = status_of(dataset(), nodes("a"), [copy("a")], NOW)
    assert told(DatasetStatus(), nowhere) == []
    assert told(nowhere, here) == [("Available", f"{NEW} is whole on a")]
    assert told(here, here) == []
    assert told(here, nowhere) == [
        ("Unavailable", "no node has it any more; a had. The next pod that asks brings it again")
    ]


def test_a_prefetch_is_told_from_its_start_to_its_end() -> None:
    wish: dict[str, Any] = {"prefetch": {"nodes": 2}, "maxAge": "1h"}
    start = status_of(dataset(**wish), nodes("a", "b"), [], NOW)
    done = status_of(dataset(start, **wish), nodes("a", "b"), [copy("a"), copy("b")], NOW)
    renewed = status_of(dataset(done, **wish), nodes("a", "b"), [copy("a"), copy("b")], NOW + HOUR)
    ended = status_of(dataset(renewed), nodes("a", "b"), [copy("a"), copy("b")], NOW + HOUR)
    assert told(DatasetStatus(), start) == [("PrefetchStarted", "it is brought to a, b")]
    assert told(start, done)[1:] == [("PrefetchDone", "on 2 of 2 nodes")]
    assert told(done, renewed) == [("PrefetchRenewed", "spec.maxAge is over: it is compared with its source on a, b")]
    assert [reason for reason, _ in told(renewed, ended)] == ["PrefetchEnded"]


def test_a_prefetch_that_cannot_be_as_wished_is_a_warning() -> None:
    few = status_of(dataset(prefetch={"nodes": 3}), nodes("a"), [], NOW)
    none = status_of(dataset(prefetch={"nodeSelector": {}}), {}, [], NOW)
    for status, said in ((few, "on 0 of 1 node; 3 are asked for"), (none, "on 0 of 0 nodes; all that match")):
        (news,) = [one for one in news_of(DatasetStatus(), status) if one.reason == "PrefetchShort"]
        assert news.warning
        assert news.note.startswith(said)


def test_a_deleted_dataset_says_what_stays_and_where() -> None:
    here = status_of(dataset(), nodes("a"), [copy("a")], NOW)
    going = status_of(dataset(here, deleted=NOW), nodes("a"), [copy("a")], NOW)
    assert told(here, going) == [("Deleting", "unused copies are being removed from a")]
    where = nodes("a", "b") | nodes("c", ready=False)
    (news,) = news_of_end([copy("a", in_use=True), copy("b"), copy("c"), copy("gone")], where)
    assert "a (in use), b (it was not removed in time), c (the node is not ready);" in news.note
    assert news.warning
    assert not news_of_end([copy("a", in_use=True)], where)[0].warning
    assert news_of_end([copy("gone")], where) == []


def test_the_same_is_said_once_an_hour() -> None:
    said: list[str] = []
    teller = Teller(lambda one: said.append(one.reason))
    news = news_of(DatasetStatus(), status_of(dataset(), nodes("a"), [copy("a")], NOW))
    for passed in (timedelta(0), ONCE_IN - timedelta(seconds=1), ONCE_IN):
        teller.tell(dataset(), news, NOW + passed)
    assert said == ["Available", "Available"]


def test_many_names_are_not_all_said() -> None:
    assert some([*"abcde"]) == "a, b, c, d, e"
    assert some([*"abcdefg"]) == "a, b, c, d, e and 2 more"
