"""Words of the command line as the values of a verb's parameters."""

from enum import StrEnum
from typing import Annotated, Any

import pytest

from dsagent.core.errors import UsageError
from dsagent.entrypoints.dsctl.help_text import help_text
from dsagent.entrypoints.dsctl.parser import Argument, Command, Option, find, parameters_of, parse


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


def paint(
    _canvas: object,
    what: Annotated[str, Argument("What to paint.", "WHAT")],
    others: Annotated[list[str] | None, Argument("What else.", "-- OTHERS…")] = None,
    *,
    coats: Annotated[int, Option("How many.", names=("--coats", "-c"), least=1, most=3)] = 1,
    colour: Annotated[Colour, Option("Which.")] = Colour.RED,
    two_sided: Annotated[bool, Option("Behind as well.", names=("--two-sided", "-2"))] = False,
    note: Annotated[list[str] | None, Option("A note.")] = None,
) -> None:
    """Paint something."""


PAINT = Command("box paint", paint.__doc__ or "", "Example:\n  box paint wall", paint, parameters_of(paint))
BOX = Command("box", "A box.", "", None, (), {"paint": PAINT})
DEFAULTS = {"what": "wall", "others": None, "coats": 1, "colour": Colour.RED, "two_sided": False, "note": None}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("wall", {}),
        ("wall door", {"others": ["door"]}),
        ("--coats 2 wall", {"coats": 2}),
        ("wall --coats=2", {"coats": 2}),
        ("wall -c2", {"coats": 2}),
        ("wall -2c 3", {"coats": 3, "two_sided": True}),
        ("wall --colour blue", {"colour": Colour.BLUE}),
        ("--two-sided wall", {"two_sided": True}),
        ("wall --note a --note=b=c", {"note": ["a", "b=c"]}),
        ("wall --coats 2 --coats 3", {"coats": 3}),
        ("wall -- --coats -", {"others": ["--coats", "-"]}),
        ("wall --note --coats", {"note": ["--coats"]}),
        ("- x", {"what": "-", "others": ["x"]}),
    ],
)
def test_words_become_values(line: str, changed: dict[str, Any]) -> None:
    assert parse(PAINT, line.split()).values == {**DEFAULTS, **changed}


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("", "Missing argument 'WHAT'"),
        ("wall --colours red", "No such option: --colours. Did you mean '--colour'?"),
        ("wall -x", "No such option: -x"),
        ("wall --colour green", "Invalid value for '--colour': 'green' is not one of 'red', 'blue'"),
        ("wall --coats 4", "Invalid value for '--coats': 4 is not from 1 to 3"),
        ("wall --coats many", "Invalid value for '--coats': 'many' is no number"),
        ("wall --coats", "Option '--coats' requires an argument"),
        ("wall --two-sided=yes", "Option '--two-sided' does not take a value"),
    ],
)
def test_what_is_wrong_is_said(line: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(PAINT, line.split())
    assert caught.value.cause == cause
    assert (caught.value.subject, caught.value.hint) == ("box paint", "see box paint --help")


def test_a_word_too_many() -> None:
    def strict(one: Annotated[str, Argument("One.", "ONE")]) -> None:
        """Takes one."""

    with pytest.raises(UsageError, match=r"unexpected extra argument\(s\) \(b c\)"):
        parse(Command("box", "", "", strict, parameters_of(strict)), ["a", "b", "c"])


def test_a_groups_words_end_at_the_verb() -> None:
    command, words = find(BOX, parse(BOX, ["paint", "--coats", "2", "--help"]).rest)
    assert (command, words) == (PAINT, ["--coats", "2", "--help"])
    assert parse(PAINT, words).help
    assert parse(BOX, ["--help", "paint"]).help
    for wrong, cause in ((["pain"], "'paint'"), ([], "Missing command")):
        with pytest.raises(UsageError, match=cause):
            find(BOX, wrong)


def test_help_names_all_that_a_verb_takes() -> None:
    text = help_text(PAINT)
    assert text.startswith("Usage: box paint [OPTIONS] WHAT [-- OTHERS…]\n\n  Paint something.\n")
    assert "-c, --coats <int>" in text
    assert "Which.  [default: red]" in text
    assert "--note <str>" in text
    assert text.endswith("Example:\n  box paint wall\n")
    assert max(map(len, text.splitlines())) <= 80
