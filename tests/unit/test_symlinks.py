import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsagent.core.symlinks import SymlinkCheck, target_leaves

PARTS = st.lists(st.sampled_from(["..", ".", "a", "b", "d", "d/e"]), min_size=1, max_size=6).map("/".join)


def refused(links: dict[str, str]) -> bool:
    check = SymlinkCheck()
    for path, target in links.items():
        if target_leaves(path.encode(), target.encode()):
            return True
        check.add(path.encode(), target.encode())
    return bool(check.leaving())


@pytest.mark.parametrize(
    ("links", "bad"),
    [
        ({"a": "b"}, False),
        ({"d/a": "../b"}, False),
        ({"a": "d/../b"}, False),
        ({"a": ".."}, True),
        ({"a": "/b"}, True),
        ({"d/a": "../../b"}, True),
        ({"here": ".", "out": "here/.."}, True),
        ({"out": "here/..", "here": "."}, True),
        ({"x": ".", "y": ".", "out": "x/y/.."}, True),
        ({"x": ".", "in": "x/d"}, False),
    ],
)
def test_links_that_stay_and_links_that_leave(links: dict[str, str], bad: bool) -> None:
    assert refused(links) is bad


@given(st.dictionaries(st.sampled_from(["a", "b", "d/a", "d/e/b"]), PARTS, max_size=4))
def test_what_is_accepted_stays_inside_on_a_real_filesystem(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]
) -> None:
    root = Path(os.path.realpath(tmp_path_factory.mktemp("links"))) / "root"
    (root / "d" / "e").mkdir(parents=True)
    for path, target in links.items():
        (root / path).symlink_to(target)
    if not refused(links):
        for path in links:
            assert (os.path.realpath(root / path) + "/").startswith(f"{root}/")
