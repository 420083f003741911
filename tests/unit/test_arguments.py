"""Options that stand before or after the verb."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsagent.entrypoints.dsctl.arguments import hoist

OPTIONS = {
    "--root /r": ("--root", "/r"),
    "--root=/r": ("--root", "/r"),
    "--capacity 5G": ("--capacity", "5G"),
    "--keep-free 1G": ("--keep-free", "1G"),
    "-o json": ("--output", "json"),
    "-ojson": ("--output", "json"),
    "-o=json": ("--output", "json"),
    "--output json": ("--output", "json"),
    "--output=json": ("--output", "json"),
    "--timeout 90s": ("--timeout", "90s"),
    "--progress plain": ("--progress", "plain"),
    "--quiet": ("--quiet",),
    "-q": ("--quiet",),
    "-v": ("--verbose",),
    "--verbose": ("--verbose",),
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("verb", ["ls", "lease add tiny --owner me", "run a,b"])
def test_an_option_may_stand_anywhere(option: str, verb: str) -> None:
    words = verb.split()
    for at in (0, 1, len(words)):
        line = [*words[:at], *option.split(), *words[at:]]
        found = hoist([*line, "--", *option.split()])
        assert found.ordered == (*OPTIONS[option], *words, "--", *option.split())
        assert (found.verb, found.separated) == (words[0], True)
        assert found.output == ("json" if "--output" in OPTIONS[option] else "")


@given(st.lists(st.sampled_from([*OPTIONS, "cache", "x", "--name n", "--version", "--help", "-z", "", "-o", "--"])))
def test_what_is_in_order_stays_so_and_what_follows_is_not_touched(parts: list[str]) -> None:
    line = [word for part in parts for word in part.split(" ")]
    found = hoist(line)
    assert hoist(found.ordered).ordered == found.ordered
    if "--" in line:
        at = line.index("--")
        assert found.ordered[len(found.ordered) - len(line[at:]) :] == tuple(line[at:])


def test_a_version_after_cache_is_the_datasets() -> None:
    assert hoist(["cache", "s", "--version", "v"]).ordered == ("cache", "s", "--version", "v")
    assert hoist(["--version", "cache"]).ordered == ("--version", "cache")
    assert hoist(["ls", "--version"]).ordered == ("--version", "ls")


def test_an_option_without_its_value_is_left_to_the_parser() -> None:
    assert hoist(["ls", "--root"]).ordered == ("--root", "ls")
