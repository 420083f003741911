"""The vote for a job's rail: its rules on small clusters, and what must hold of any."""

from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from scheduler_plugin.rail.vote import DATA_WEIGHT, Ballot, choose, suggestion

ONE, TWO = "dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2"


def test_each_node_suggests_the_class_of_which_it_has_most_and_most_votes_win() -> None:
    ballots = [Ballot("a", {ONE: 4, TWO: 3}), Ballot("b", {ONE: 1, TWO: 2}), Ballot("c", {ONE: 0, TWO: 1})]
    found = choose(ballots, 1, "job")
    assert found is not None
    assert (found.resource, found.votes, found.nodes) == (TWO, {ONE: 1, TWO: 2}, ["b", "c"])
    assert found.reason == "2 of 3 nodes that could take its pods have most of it: 2 of 3 votes"


def test_a_node_without_enough_for_a_pod_has_no_vote() -> None:
    ballots = [Ballot("a", {ONE: 4}), Ballot("b", {TWO: 3}), Ballot("c", {TWO: 3})]
    found = choose(ballots, 4, "job")
    assert found is not None
    assert (found.resource, found.votes) == (ONE, {ONE: 1})
    assert choose(ballots, 5, "job") is None


def test_a_holder_of_the_data_counts_as_much_as_ten_others() -> None:
    def winner(others: int) -> str:
        found = choose([Ballot("holder", {ONE: 1}, 1.0), *(Ballot(f"n{n}", {TWO: 9}) for n in range(others))], 1, "j")
        assert found is not None
        return found.resource

    assert winner(DATA_WEIGHT) == ONE
    assert winner(DATA_WEIGHT + 2) == TWO


def test_jobs_that_tie_are_spread_over_the_rails() -> None:
    empty = [Ballot(f"n{number}", {ONE: 4, TWO: 4}) for number in range(4)]
    found = [choose(empty, 1, f"job{number}") for number in range(40)]
    winners = [one.resource for one in found if one]
    assert 10 < winners.count(ONE) < 30


def some_ballots() -> st.SearchStrategy[list[Ballot]]:
    devices = st.dictionaries(st.sampled_from([ONE, TWO, "dsagent.io/gpu-roce3"]), st.integers(0, 8))
    shares = st.floats(0, 1)
    return st.lists(st.tuples(devices, shares), max_size=8).map(
        lambda found: [Ballot(f"n{place}", one, share) for place, (one, share) in enumerate(found)]
    )


@given(some_ballots(), st.integers(0, 8), st.sampled_from("abc"), st.randoms(use_true_random=False))
def test_any_vote(ballots: list[Ballot], wanted: int, job: str, random: Random) -> None:
    found = choose(ballots, wanted, job)
    shuffled = list(ballots)
    random.shuffle(shuffled)
    assert choose(shuffled, wanted, job) == found  # replicas, whose nodes come in another order, decide alike
    able = [one for one in ballots if any(count >= max(1, wanted) for count in one.devices.values())]
    assert (found is not None) == bool(able)
    if found:
        assert found.votes[found.resource] == max(found.votes.values())
        assert all(enough(one.devices, found.resource, wanted) for one in able if one.node in found.nodes)
        assert len(able) <= sum(found.votes.values()) <= len(able) * (1 + DATA_WEIGHT)


def enough(devices: Mapping[str, int], resource: str, wanted: int) -> bool:
    return suggestion(devices, wanted, "") is not None and devices[resource] >= max(1, wanted)
