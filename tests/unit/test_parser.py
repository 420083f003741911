"""Words of the command line as the values of a verb's parameters."""

from enum import StrEnum
from typing import Annotated, Any

import pytest

from dsagent.core.errors import UsageError
from dsagent.entrypoints.dsctl.parser import Argument, Command, Option, make_reader, parameters_of, parse


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


def box(
    _canvas: object,
    *,
    colour: Annotated[Colour, Option("Of the box.")] = Colour.BLUE,
    version: Annotated[bool, Option("Say the version.", shows="box 1")] = False,
) -> None:
    """A box."""


def strict(_canvas: object, one: Annotated[str, Argument("One.", "ONE")]) -> None:
    """Takes one."""


PAINT = Command("box paint", "Paint something.", "Example:\n  box paint wall", parameters_of(paint), {}, paint)
STRICT = Command("box strict", "Takes one.", "", parameters_of(strict), {}, strict)
BOX = Command("box", "A box.", "", parameters_of(box), {"paint": PAINT, "strict": STRICT, "_hidden": STRICT})
DEFAULTS = {"what": "wall", "others": None, "coats": 1, "colour": Colour.RED, "two_sided": False, "note": None}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("wall", {}),
        ("--coats 2 wall", {"coats": 2}),
        ("wall --coats=2", {"coats": 2}),
        ("wall -c2", {"coats": 2}),
        ("wall -2c 3", {"coats": 3, "two_sided": True}),
        ("wall --colour blue", {"colour": Colour.BLUE}),
        ("--two-sided wall", {"two_sided": True}),
        ("wall --note a --note=b=c", {"note": ["a", "b=c"]}),
        ("wall --coats 2 --coats 3", {"coats": 3}),
        ("wall -- --coats -", {"others": ["--coats", "-"]}),
        ("--coats 2 wall --note a -- b -- c", {"coats": 2, "note": ["a"], "others": ["b", "--", "c"]}),
        ("-", {"what": "-"}),
    ],
)
def test_words_become_values(line: str, changed: dict[str, Any]) -> None:
    parsed = parse(BOX, "paint", ["--colour", "red", "paint", *line.split()])
    assert parsed.verb is PAINT
    assert parsed.values == {**DEFAULTS, **changed}
    assert parsed.every == {"colour": Colour.RED}


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("", "the following arguments are required: WHAT"),
        ("wall --colours red", "unrecognized arguments: --colours red"),
        ("wall --col red", "unrecognized arguments: --col red"),
        ("wall --colour green", "argument --colour: 'green' is not one of red, blue"),
        ("wall --coats 4", "argument --coats/-c: 4 is not from 1 to 3"),
        ("wall --coats many", "argument --coats/-c: 'many' is no number"),
        ("wall --coats", "argument --coats/-c: expected one argument"),
        ("wall door", "unrecognized arguments: door"),
    ],
)
def test_what_is_wrong_is_said(line: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(BOX, "paint", ["paint", *line.split()])
    assert caught.value.cause == cause
    assert caught.value.subject in ("box", "box paint")
    assert caught.value.hint == f"see {caught.value.subject} --help"


def test_a_word_after_dashes_is_no_option() -> None:
    assert parse(BOX, "strict", ["strict", "--", "--one"]).values == {"one": "--one"}


@pytest.mark.parametrize(("words", "cause"), [([], "required: COMMAND"), (["pain"], "'pain'")])
def test_a_verb_is_needed(words: list[str], cause: str) -> None:
    with pytest.raises(UsageError, match=cause):
        parse(BOX, "pain", words)


@pytest.mark.parametrize(("words", "shown"), [(["--version"], "box 1\n"), (["paint", "--help"], "usage: box paint ")])
def test_what_is_only_shown(words: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(BOX, "paint", words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(shown)


def test_help_names_all_that_a_verb_takes() -> None:
    text = make_reader(PAINT).format_help()
    assert text.startswith("usage: box paint [OPTIONS] WHAT [-- OTHERS…]\n\nPaint something.\n")
    for part in ("--coats", "Which. [default: red]", "red|blue", "--note TEXT"):
        assert part in text
    assert text.endswith("Example:\n  box paint wall\n")
    assert "_hidden" not in make_reader(BOX).format_help()
