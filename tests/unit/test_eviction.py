"""The plan of an eviction, against a model that tries every way."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from dsagent.core.datasets import DatasetKey
from dsagent.core.eviction import plan
from dsagent.core.ports import CachedVersion
from dsagent.core.space import Space

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Space()


def version(identifier: str, hours: int, allocated: Space = NOTHING) -> CachedVersion:
    used = EPOCH + timedelta(hours=hours)
    key = DatasetKey("_local", "imgs")
    return CachedVersion(identifier, key, "xxh3:0", "/src", "", 1, 1, allocated, EPOCH, used)


class SharedFiles:
    """Versions as sets of files: a file takes no room once every version that has it is gone."""

    def __init__(self, files: dict[str, frozenset[int]]) -> None:
        self._files = files

    def freed(self, versions: Sequence[CachedVersion]) -> Space:
        gone = {one.id for one in versions}
        kept = frozenset[int]().union(*(files for name, files in self._files.items() if name not in gone))
        lost = frozenset[int]().union(*(self._files[name] for name in gone)) - kept
        # A file's number says its size as well: 1 to 7 blocks.
        return Space(sum(4096 * (1 + number % 7) for number in lost), len(lost))


@st.composite
def caches(draw: st.DrawFn) -> tuple[list[CachedVersion], SharedFiles]:
    files = draw(st.lists(st.frozensets(st.integers(0, 30), max_size=12), max_size=8))
    names = [f"v{index}" for index in range(len(files))]
    hours = draw(st.lists(st.integers(0, 5), min_size=len(files), max_size=len(files)))
    versions = [version(name, used) for name, used in zip(names, hours, strict=True)]
    return versions, SharedFiles(dict(zip(names, files, strict=True)))


goals = st.builds(Space, st.integers(-4096, 200 * 4096), st.integers(-1, 40))


@given(caches(), goals)
def test_a_plan_takes_the_longest_unused_and_stops_as_soon_as_it_is_enough(
    cache: tuple[list[CachedVersion], SharedFiles], missing: Space
) -> None:
    candidates, files = cache
    made = plan(missing, candidates, files.freed)
    order = sorted(candidates, key=lambda one: (one.last_used, one.id))
    prefixes = [order[:length] for length in range(len(order) + 1)]
    enough = [prefix for prefix in prefixes if files.freed(prefix).covers(missing)]
    if enough and not Space().covers(missing):
        assert list(made.versions) == enough[0]
        assert made.enough
    elif enough:
        assert made.versions == ()
        assert made.enough
    else:
        assert not made.enough
        assert made.freed == files.freed(order)
    assert made.freed == files.freed(made.versions)


@given(st.lists(st.integers(0, 10), min_size=1, max_size=10), st.integers(1, 60))
def test_of_versions_that_share_nothing_no_smaller_prefix_would_do(blocks: list[int], missing: int) -> None:
    candidates = [version(f"{i:02}", i, Space(size, 1)) for i, size in enumerate(blocks)]
    made = plan(Space(missing), candidates, lambda some: sum((one.allocated for one in some), Space()))
    totals = list(accumulate(blocks))
    assert made.enough == (totals[-1] >= missing)
    if made.enough:
        assert len(made.versions) == next(i for i, total in enumerate(totals) if total >= missing) + 1


def test_inodes_alone_are_a_reason() -> None:
    candidates = [version("a", 0, Space(1 << 30, 1)), version("b", 1, Space(0, 500))]
    made = plan(Space(0, 100), candidates, lambda some: sum((one.allocated for one in some), Space()))
    assert [one.id for one in made.versions] == ["a", "b"]
    assert made.enough


def test_nothing_missing_evicts_nothing() -> None:
    made = plan(Space(-1, -1), [version("a", 0, Space(5, 5))], lambda _: NOTHING)
    assert made.versions == ()
    assert made.enough
