from hypothesis import given
from hypothesis import strategies as st

from dsagent.core.entries import FILE, Stamp
from dsagent.core.join import beside, outer
from dsagent.core.manifest import FRAME_BYTES
from dsagent.core.plan import BundlePlan, CopyPlan
from dsagent.core.tarstream import header_length, padding
from tests.unit.trees import stamp_of

SIZES = st.lists(st.one_of(st.integers(0, 100_000), st.integers(0, 40 << 20)), max_size=60)


@given(SIZES, st.integers(1, 20), st.integers(1 << 20, 64 << 20))
def test_frames_and_bundles_keep_their_bounds(sizes: list[int], files: int, bundle_bytes: int) -> None:
    plan = BundlePlan(files, bundle_bytes)
    bundles: dict[int, list[int]] = {}
    jobs: dict[tuple[int, int], list[int]] = {}
    for number, size in enumerate(sizes):
        path = b"%06d" % number
        weight = header_length(path) + size + padding(size)
        group = plan(stamp_of(path, size))
        bundles.setdefault(group.bundle, []).append(weight)
        jobs.setdefault((group.bundle, group.job), []).append(weight)
    assert all(len(weights) <= files for weights in bundles.values())
    assert all(sum(weights) <= bundle_bytes or len(weights) == 1 for weights in bundles.values())
    assert all(sum(weights) <= FRAME_BYTES or len(weights) == 1 for weights in jobs.values())
    assert list(bundles) == sorted(bundles)


def test_fifty_thousand_small_files_are_one_bundle() -> None:
    plan = BundlePlan(50_000, 1 << 30)
    groups = {plan(stamp_of(b"%06d" % number, 10)).bundle for number in range(50_001)}
    assert groups == {0, 1}


@given(SIZES, st.integers(1, 20))
def test_copies_keep_their_bounds(sizes: list[int], files: int) -> None:
    plan = CopyPlan(files, 1 << 20)
    jobs: dict[int, list[int]] = {}
    for number, size in enumerate(sizes):
        jobs.setdefault(plan(stamp_of(b"%06d" % number, size)).job, []).append(size)
    assert all(len(job) <= files and (sum(job) <= 1 << 20 or len(job) == 1) for job in jobs.values())


PATHS = st.lists(st.binary(min_size=1, max_size=4).filter(lambda p: b"\0" not in p), unique=True)


def in_order(paths: list[bytes]) -> list[Stamp]:
    return [Stamp(path, FILE, False, 0, 0, b"") for path in sorted(paths, key=lambda path: path.replace(b"/", b"\0"))]


@given(PATHS, PATHS)
def test_streams_side_by_side_pair_equal_paths(left: list[bytes], right: list[bytes]) -> None:
    ours, theirs = in_order(left), in_order(right)
    pairs = list(outer(ours, theirs))
    assert [one for one, _ in pairs if one] == ours
    assert [other for _, other in pairs if other] == theirs
    assert {one.path for one, other in pairs if one and other} == set(left) & set(right)
    assert all(one.path == other.path for one, other in pairs if one and other)
    assert [one.path for one, other in beside(ours, theirs) if other is None] == [
        stamp.path for stamp in ours if stamp.path not in set(right)
    ]
