"""The command line before it is parsed: options for every verb may stand before it and after it."""

from collections.abc import Sequence
from typing import NamedTuple

WITH_VALUE = {
    "--root": "--root",
    "--agent": "--agent",
    "--node": "--node",
    "--capacity": "--capacity",
    "--keep-free": "--keep-free",
    "--output": "--output",
    "-o": "--output",
    "--timeout": "--timeout",
    "--progress": "--progress",
}
WITHOUT_VALUE = {"--quiet": "--quiet", "-q": "--quiet", "--verbose": "--verbose", "-v": "--verbose"}
VERSION = "--version"
CACHE = "cache"  # the one verb that has a --version of its own


class Arguments(NamedTuple):
    """The arguments with what every verb takes at the front, the verb, and whether `--` was among them."""

    ordered: tuple[str, ...]
    verb: str
    output: str
    separated: bool


def hoist(arguments: Sequence[str]) -> Arguments:
    """Puts the options that every verb takes before the verb; what follows `--` is not looked at."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    front: list[str] = []
    rest: list[str] = []
    verb = output = ""
    todo = list(arguments[:end])
    while todo:
        word = todo.pop(0)
        name, value = _split(word)
        if name in WITH_VALUE:
            if value is None:
                value = todo.pop(0) if todo else None
            front += [WITH_VALUE[name]] if value is None else [WITH_VALUE[name], value]
            output = value or "" if WITH_VALUE[name] == "--output" else output
        elif word in WITHOUT_VALUE:
            front.append(WITHOUT_VALUE[word])
        elif word == VERSION and verb != CACHE:
            front.append(word)
        else:
            verb = verb or ("" if word.startswith("-") else word)
            rest.append(word)
    return Arguments((*front, *rest, *arguments[end:]), verb, output, end < len(arguments))


def _split(word: str) -> tuple[str, str | None]:
    """An option and the value that is joined to it: `--output=json`, `-ojson`."""
    if word.startswith("--") and "=" in word:
        name, _, value = word.partition("=")
        return name, value
    if word.startswith("-o") and len(word) > 2:
        return "-o", word[2:].removeprefix("=")
    return word, None
