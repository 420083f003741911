"""The choice of GPUs, beside one that tries every set."""

from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_topology.allocate import EXACT, Policy, allocate, score

Pairs = Mapping[str, Mapping[str, int]]


def pairs_of(count: int, weights: list[int]) -> Pairs:
    """Scores of `count` GPUs, from as many weights as it takes, again and again."""
    table: dict[str, dict[str, int]] = {str(n): {} for n in range(count)}
    for place, (one, other) in enumerate(combinations(table, 2)):
        table[one][other] = table[other][one] = weights[place % len(weights)]
    return table


@st.composite
def requests(draw: st.DrawFn) -> tuple[tuple[str, ...], set[str], int, Pairs, dict[str, str]]:
    count = draw(st.integers(1, 9))
    pairs = pairs_of(count, draw(st.lists(st.sampled_from([10, 20, 50, 150, 613]), min_size=1, max_size=36)))
    available = tuple(draw(st.permutations(sorted(pairs))))[: draw(st.integers(1, count))]
    required = set(draw(st.lists(st.sampled_from(available), max_size=3)))
    size = draw(st.integers(len(required), len(available)))
    rails = {gpu: draw(st.sampled_from(["", "a", "b", "c"])) for gpu in available}
    return available, required, size, pairs, rails


def every_set(available: tuple[str, ...], required: set[str], size: int) -> list[tuple[str, ...]]:
    return [found for found in combinations(available, size) if required.issubset(found)]


@given(requests())
def test_best_link_has_the_highest_score_of_all_sets(
    request: tuple[tuple[str, ...], set[str], int, Pairs, dict[str, str]],
) -> None:
    available, required, size, pairs, _ = request
    sets = every_set(available, required, size)
    assert allocate(available, required, size, Policy.BEST_LINK, pairs) == max(sets, key=lambda one: score(one, pairs))


@given(requests())
def test_pack_leaves_the_highest_score_and_then_takes_it(
    request: tuple[tuple[str, ...], set[str], int, Pairs, dict[str, str]],
) -> None:
    available, required, size, pairs, _ = request

    def worth(taken: tuple[str, ...]) -> tuple[int, int]:
        return score([gpu for gpu in available if gpu not in taken], pairs), score(taken, pairs)

    got = allocate(available, required, size, Policy.PACK, pairs)
    assert got in every_set(available, required, size)
    assert worth(got) == max(map(worth, every_set(available, required, size)))


@given(requests())
def test_rail_aligned_has_most_pairs_on_one_rail_and_then_the_highest_score(
    request: tuple[tuple[str, ...], set[str], int, Pairs, dict[str, str]],
) -> None:
    available, required, size, pairs, rails = request

    def worth(taken: tuple[str, ...]) -> tuple[int, int]:
        same = sum(1 for one, other in combinations(taken, 2) if rails[one] and rails[one] == rails[other])
        return same, score(taken, pairs)

    got = allocate(available, required, size, Policy.RAIL_ALIGNED, pairs, rails)
    assert worth(got) == max(map(worth, every_set(available, required, size)))


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [
        (["0", "1"], [], 3),  # too few
        (["0", "1"], ["2"], 1),  # not available
        (["0", "1"], ["0", "1"], 1),  # more required than asked for
        (["0", "0"], [], 1),  # twice
        ([], [], 1),
        (["0"], [], -1),
    ],
)
def test_no_such_set_is_an_empty_one(available: list[str], required: list[str], size: int) -> None:
    assert allocate(available, required, size, Policy.BEST_LINK, pairs_of(3, [10])) == ()


def test_pack_keeps_the_quad_whole_for_a_later_job() -> None:
    pairs = pairs_of(6, [10])
    table = {
        one: {other: 50 if (int(one) < 4) == (int(other) < 4) else 10 for other in row} for one, row in pairs.items()
    }
    gpus = tuple(table)
    assert allocate(gpus, [], 2, Policy.BEST_LINK, table) == ("0", "1")
    assert allocate(gpus, [], 2, Policy.PACK, table) == ("4", "5")
    assert allocate(gpus, [], 4, Policy.PACK, table) == ("0", "1", "2", "3")


@pytest.mark.parametrize("policy", Policy)
def test_of_equals_the_first_are_taken(policy: Policy) -> None:
    assert allocate(tuple("4032"), ["3"], 3, policy, pairs_of(5, [10])) == ("4", "0", "3")


def test_what_greed_and_exchanges_miss_is_found() -> None:
    """From any one GPU the best next ones, bettered by single exchanges, end at 610."""
    pairs = pairs_of(6, [20, 50, 10, 20, 250, 150, 250, 20, 50, 20, 20, 50, 150, 50, 20])
    assert score(allocate(tuple(pairs), [], 4, Policy.BEST_LINK, pairs), pairs) == 630


def test_a_rail_outweighs_any_link() -> None:
    pairs = {one: {other: 1850 for other in "0123" if other != one} for one in "0123"}
    rails = {"0": "a", "1": "b", "2": "b", "3": ""}
    assert allocate(tuple("0123"), [], 2, Policy.RAIL_ALIGNED, pairs, rails) == ("1", "2")


@pytest.mark.parametrize("policy", Policy)
def test_sixteen_alike_groups_are_seen_through(policy: Policy) -> None:
    """Two sockets of eight, in which only the whole of one is best: what greed alone finds is checked, not assumed."""
    assert EXACT >= 16
    pairs = pairs_of(16, [10])
    table = {one: {other: 50 if int(one) % 2 == int(other) % 2 else 10 for other in row} for one, row in pairs.items()}
    assert {int(gpu) % 2 for gpu in allocate(tuple(table), ["3"], 8, policy, table)} == {1}


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("size", [1, 2, 31, 62, 64])
def test_sixty_four_end_in_a_set_that_no_exchange_betters(policy: Policy, size: int) -> None:
    pairs = pairs_of(64, [10, 50, 20, 410, 30, 220, 150])
    rails = {gpu: str(int(gpu) // 8) for gpu in pairs}
    got = allocate(tuple(pairs), ["7"], size, policy, pairs, rails)
    assert len(set(got)) == size
    assert "7" in got
    if policy is Policy.BEST_LINK:
        gain = {gpu: sum(pairs[gpu][other] for other in got if other != gpu) for gpu in pairs}
        better = [
            (old, new)
            for old in got
            for new in pairs
            if old != "7" and new not in got and gain[new] - pairs[new][old] > gain[old]
        ]
        assert better == []
