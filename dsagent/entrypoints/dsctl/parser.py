"""The command line: verbs are functions, and the annotations of their parameters say what each takes.

argparse reads the words: it is there, and loaded in a hundredth of the time of what is nicer to look at.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import FunctionType, NoneType, UnionType
from typing import Any, NamedTuple, NoReturn, cast, get_args, get_origin

from dsagent.entrypoints.dsctl.failure import usage_error


class Option(NamedTuple):
    """In a parameter's annotation: an option, called like the parameter unless it has `names`. `least` and `most` are
    the bounds of a number; one that `shows` a text prints it, and nothing else is done.
    """

    help: str
    names: tuple[str, ...] = ()
    metavar: str = ""
    least: int | None = None
    most: int | None = None
    shows: str = ""


class Argument(NamedTuple):
    """In a parameter's annotation: a word that is no option. Of a list: all that follow `--`."""

    help: str
    metavar: str


class Parameter(NamedTuple):
    """A parameter of a verb's function. `kind` is bool, int, str or a StrEnum; `many`: it takes a list of them."""

    name: str
    names: tuple[str, ...]
    says: Option | Argument
    kind: type
    many: bool
    required: bool
    default: Any

    @property
    def choices(self) -> list[str]:
        """What it may be, if it is one of several."""
        return [choice.value for choice in self.kind] if issubclass(self.kind, StrEnum) else []

    @property
    def follows_dashes(self) -> bool:
        """Whether it is what follows `--`."""
        return self.many and not self.names


class Command(NamedTuple):
    """A verb, or a group of them if it has `commands`. `path` are the words that lead to it."""

    path: str
    help: str
    epilog: str
    parameters: Sequence[Parameter]
    commands: "Mapping[str, Command]"
    function: Callable[..., int | None] = lambda: None


class Parsed(NamedTuple):
    """What the words say: the values of the options of every verb, the verb, and the values of its parameters."""

    every: dict[str, Any]
    verb: Command
    values: dict[str, Any]


def parse(top: Command, name: str, words: Sequence[str]) -> Parsed:
    """Reads the words; `name` is the verb or group among them. Raises UsageError; prints help and ends with SystemExit
    where that is asked for.
    """
    has_tail = any(one.follows_dashes for one in top.commands.get(name, top).parameters)
    end = words.index("--") if has_tail and "--" in words else len(words)
    found = vars(make_reader(top).parse_args(words[:end]))
    verb: Command = found["verb"]
    tail = {one.name: list(words[end + 1 :]) or None for one in verb.parameters if one.follows_dashes}
    return Parsed(_values(top, found), verb, _values(verb, found) | tail)


def _values(command: Command, found: Mapping[str, Any]) -> dict[str, Any]:
    return {one.name: found[_place(command, one)] for one in command.parameters if _place(command, one) in found}


def _place(command: Command, one: Parameter) -> str:
    """Two commands on the way to a verb may have parameters of one name."""
    return f"{command.path} {one.name}"


class Reader(argparse.ArgumentParser):
    """argparse with errors that are ours."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise usage_error(self.prog, message)


def make_reader(command: Command) -> Reader:
    """The parser of a command and of those below it."""
    reader = Reader(**_described(command))
    _fill(reader, command)
    return reader


def _described(command: Command) -> dict[str, Any]:
    arguments = [one for one in command.parameters if not one.names]
    words = [one.says.metavar if one.required else f"[{one.says.metavar}]" for one in arguments]
    return {
        "prog": command.path,
        "usage": " ".join([command.path, "[OPTIONS]", *(["COMMAND …"] if command.commands else words)]),
        "description": "\n".join(line.strip() for line in command.help.splitlines()),
        "epilog": command.epilog,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }


def _fill(reader: argparse.ArgumentParser, command: Command) -> None:
    reader.set_defaults(verb=command)
    for one in command.parameters:
        if not one.follows_dashes:
            _add(reader, command, one)
    if command.commands:
        verbs = reader.add_subparsers(metavar="COMMAND", required=True, title="commands", parser_class=Reader)
        for name, found in command.commands.items():
            shown: dict[str, Any] = {}  # one without help is not listed
            if not name.startswith("_"):
                shown["help"] = " ".join(found.help.partition("\n\n")[0].split())
            _fill(verbs.add_parser(name, **shown, **_described(found)), found)


def _add(reader: argparse.ArgumentParser, command: Command, one: Parameter) -> None:
    says = one.says
    note = "" if one.required or not one.default else f" [default: {one.default}]"
    text = f"{says.help}{note}".replace("%", "%%")
    if isinstance(says, Argument):
        nargs = None if one.required else "?"
        reader.add_argument(_place(command, one), metavar=says.metavar, nargs=nargs, type=_type(one), help=text)
    elif says.shows:
        reader.add_argument(*one.names, action="version", version=says.shows, help=text)
    elif one.kind is bool:
        reader.add_argument(*one.names, dest=_place(command, one), action="store_true", help=text)
    else:
        reader.add_argument(
            *one.names,
            dest=_place(command, one),
            action="append" if one.many else "store",
            type=_type(one),
            metavar=says.metavar or "|".join(one.choices) or ("NUMBER" if one.kind is int else "TEXT"),
            default=one.default,
            required=one.required,
            help=text,
        )


def _type(one: Parameter) -> Callable[[str], Any]:
    if one.choices:
        return lambda text: _choice(one, text)
    if one.kind is int and isinstance(one.says, Option):
        return lambda text: _number(text, one.says.least, one.says.most)  # type: ignore[union-attr]
    return str


def _choice(one: Parameter, text: str) -> Any:
    if text not in one.choices:
        raise argparse.ArgumentTypeError(f"'{text}' is not one of {', '.join(one.choices)}")
    return one.kind(text)


def _number(text: str, least: int | None, most: int | None) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number") from None
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise argparse.ArgumentTypeError(f"{number} is not {bounds}")
    return number


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters whose annotation has an Option or an Argument."""
    verb = cast("FunctionType", function)  # inspect.signature would tell the same, and takes 10 ms to import
    code = verb.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    defaults = dict(zip(reversed(names[: code.co_argcount]), reversed(verb.__defaults__ or ()), strict=False))
    defaults |= verb.__kwdefaults__ or {}
    return [
        _parameter(name, annotation, name not in defaults, defaults.get(name))
        for name in names
        if hasattr(annotation := verb.__annotations__[name], "__metadata__")
    ]


def _parameter(name: str, annotation: Any, required: bool, default: Any) -> Parameter:
    (says,) = annotation.__metadata__
    kinds = get_args(annotation.__origin__) if isinstance(annotation.__origin__, UnionType) else ()
    (kind,) = [kind for kind in kinds if kind is not NoneType] or [annotation.__origin__]
    names = () if isinstance(says, Argument) else says.names or (f"--{name.replace('_', '-')}",)
    many = get_origin(kind) is list
    return Parameter(name, names, says, str if many else kind, many, required, default)
