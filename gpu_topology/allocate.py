"""Which GPUs to hand out together: the choice as a pure function of the scores of their pairs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, combinations

Scores = Mapping[str, Mapping[str, int]]  # of each pair of GPUs, both ways round

EXACT = 16  # with more free GPUs the search ends after STEPS, with the best set it has seen
STEPS = 1_000


class Policy(StrEnum):
    """What makes a set of GPUs the best; of equals, the set that comes first in `available`."""

    BEST_LINK = "best-link"  # the highest score
    PACK = "pack"  # what is left has the highest score, then the set has
    RAIL_ALIGNED = "rail-aligned"  # most pairs on one rail, then the highest score


def allocate(
    available: Sequence[str],
    required: Collection[str],
    size: int,
    policy: Policy,
    scores: Scores,
    rails: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """`size` of the `available` GPUs, all `required` ones among them, in the order of `available`.

    `rails` gives the rail of each GPU that has one, for Policy.RAIL_ALIGNED. Nothing if there is no such set.
    """
    known = set(available)
    if len(known) < len(available) or not known.issuperset(required) or not len(set(required)) <= size <= len(known):
        return ()
    free = [gpu for gpu in available if gpu not in required]
    more = size - len(set(required))
    if policy is Policy.PACK:
        left = _best_left(free, [gpu for gpu in available if gpu in required], len(free) - more, scores)
        return tuple(gpu for gpu in available if gpu not in left)
    weights = _aligned(available, scores, rails or {}) if policy is Policy.RAIL_ALIGNED else scores
    pairs = [[weights[one][other] if other != one else 0 for other in free] for one in free]
    alone = [sum(weights[gpu][other] for other in required) for gpu in free]
    chosen = {free[place] for place in best_subset(pairs, alone, more)} | set(required)
    return tuple(gpu for gpu in available if gpu in chosen)


def score(gpus: Iterable[str], scores: Scores) -> int:
    """The score of a set: the sum over its pairs."""
    return sum(scores[one][other] for one, other in combinations(gpus, 2))


def _aligned(gpus: Sequence[str], scores: Scores, rails: Mapping[str, str]) -> Scores:
    """Scores in which one more pair on one rail outweighs all links."""
    outweighs = 1 + score(gpus, scores)
    return {
        one: {
            other: scores[one][other] + (outweighs if rails.get(one) and rails.get(one) == rails.get(other) else 0)
            for other in gpus
            if other != one
        }
        for one in gpus
    }


def _best_left(free: Sequence[str], required: Sequence[str], count: int, scores: Scores) -> set[str]:
    """The `count` free GPUs to leave: those of the highest score, and of equals those whose taking costs most.

    With D(r) the sum of the scores of r and all others, the set taken scores a constant + score(left) - sum of D over
    left; so both wishes are one weight for each pair and one for each GPU.
    """
    everyone = [*required, *free]
    outweighs = 1 + score(everyone, scores)
    order = free[::-1]  # of equals the last are left, so that the first are taken
    pairs = [[(outweighs + 1) * scores[one][other] if other != one else 0 for other in order] for one in order]
    alone = [-sum(scores[one][other] for other in everyone if other != one) for one in order]
    return {order[place] for place in best_subset(pairs, alone, count)}


def best_subset(pairs: Sequence[Sequence[int]], alone: Sequence[int], size: int) -> list[int]:
    """The places of the `size` items with the highest sum of `alone` and of `pairs` (symmetric, 0 with itself).

    Branch and bound in the order of the items, from a set found by greed: exact for up to EXACT items, and of equal
    sets the first. With more items, the best set of the first STEPS branches.
    """
    if size <= 0:
        return []
    start = _greedy(pairs, alone, size)
    search = _Search(pairs, size, start, value_of(pairs, alone, start))
    search.go([], 0, 0, list(alone))
    return search.best


def value_of(pairs: Sequence[Sequence[int]], alone: Sequence[int], places: Sequence[int]) -> int:
    """What `best_subset` makes as large as it can."""
    return sum(alone[place] for place in places) + sum(pairs[one][other] for one, other in combinations(places, 2))


class _Search:
    """The state of one branch and bound."""

    def __init__(self, pairs: Sequence[Sequence[int]], size: int, best: list[int], value: int) -> None:
        self.best = best
        self._value = value
        self._found = False  # whether `best` is the search's own: the first that reaches the value
        self._pairs = pairs
        self._size = size
        self._steps = STEPS if len(pairs) > EXACT else -1
        self._reach: dict[int, list[list[int]]] = {}

    def go(self, chosen: list[int], start: int, value: int, gains: list[int]) -> None:
        """Looks at all sets that begin with `chosen`; `gains` is what each item would add to `value`."""
        if len(chosen) == self._size:
            if value > self._value or not self._found:
                self.best, self._value, self._found = list(chosen), value, True
            return
        wanted = self._size - len(chosen)
        for place in range(start, len(self._pairs) - wanted + 1):
            if self._steps == 0 or not self._worth(value, place, gains, wanted):
                return
            self._steps -= 1
            row = self._pairs[place]
            above = [gain + weight for gain, weight in zip(gains, row, strict=True)]
            self.go([*chosen, place], place + 1, value + gains[place], above)

    def _worth(self, value: int, start: int, gains: list[int], wanted: int) -> bool:
        """Whether `wanted` items from `start` on can still reach the best value, or exceed it once it was found.

        Each item is taken with half of its best pairs, which is never too little; all is doubled to stay whole.
        """
        reach = self._reach.get(start)
        if reach is None:
            reach = self._reach[start] = self._best_pairs(start)
        bounds = [2 * gains[start + place] + best[wanted - 1] for place, best in enumerate(reach)]
        bounds.sort(reverse=True)
        most = 2 * value + sum(bounds[:wanted])
        return most > 2 * self._value or (most == 2 * self._value and not self._found)

    def _best_pairs(self, start: int) -> list[list[int]]:
        """For each item from `start` on, the sums of its 0, 1, 2, … best pairs with the others of these."""
        rows = []
        for place in range(start, len(self._pairs)):
            others = [weight for other, weight in enumerate(self._pairs[place]) if other >= start and other != place]
            others.sort(reverse=True)
            rows.append([0, *accumulate(others[: self._size])])
        return rows


def _greedy(pairs: Sequence[Sequence[int]], alone: Sequence[int], size: int) -> list[int]:
    """A good set: from each item, always the one that adds most; then the best of these, bettered by exchanges."""
    everyone = range(len(pairs))
    sets = []
    for seed in everyone:
        chosen = [seed]
        gains = [own + weight for own, weight in zip(alone, pairs[seed], strict=True)]
        while len(chosen) < size:
            best = max((place for place in everyone if place not in chosen), key=gains.__getitem__)
            chosen.append(best)
            gains = [gain + weight for gain, weight in zip(gains, pairs[best], strict=True)]
        sets.append(chosen)
    best_set = max(sets, key=lambda chosen: value_of(pairs, alone, chosen))
    return sorted(_exchanged(pairs, alone, best_set))


def _exchanged(pairs: Sequence[Sequence[int]], alone: Sequence[int], chosen: list[int]) -> list[int]:
    """The set after every exchange of one item that makes it better."""
    for _ in pairs:
        gains = [own + sum(pairs[place][other] for other in chosen) for place, own in enumerate(alone)]
        others = [place for place in range(len(pairs)) if place not in chosen]
        exchanges = [(gains[new] - pairs[new][old] - gains[old], old, new) for old in chosen for new in others]
        if not exchanges or max(exchanges)[0] <= 0:
            break
        _, old, new = max(exchanges)
        chosen = [new if place == old else place for place in chosen]
    return chosen
