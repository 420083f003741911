"""The command line: verbs are functions, and the annotations of their parameters say what each takes.

A third of the time of a hit went into importing a library for this; here nothing is loaded but what everybody needs.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import FunctionType, NoneType, UnionType
from typing import Any, NamedTuple, cast, get_args, get_origin

from dsagent.entrypoints.dsctl.failure import usage_error

HELP = "--help"


class Option(NamedTuple):
    """In a parameter's annotation: an option, called like the parameter unless it has `names`. `least` and `most` are
    the bounds of a number.
    """

    help: str
    names: tuple[str, ...] = ()
    metavar: str = ""
    least: int | None = None
    most: int | None = None


class Argument(NamedTuple):
    """In a parameter's annotation: a word that is no option. Of a list: all that are left."""

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
    def label(self) -> str:
        """What stands for its value in a help text; empty for a flag."""
        if self.says.metavar or self.kind is bool:
            return self.says.metavar
        return f"<{'|'.join(self.choices) or self.kind.__name__}>"


class Command(NamedTuple):
    """A verb, or a group of them if it has `commands`. `path` are the words that lead to it."""

    path: str
    help: str
    epilog: str
    function: Callable[..., int | None] | None
    parameters: Sequence[Parameter] = ()
    commands: "Mapping[str, Command]" = {}  # noqa: RUF012 - nobody writes to it


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


class Parsed(NamedTuple):
    """What a command's words say: values by parameter, whether help is asked for, and the words of the verb."""

    values: dict[str, Any]
    help: bool
    rest: list[str]


def parse(command: Command, words: Sequence[str]) -> Parsed:
    """Reads the words of a command, of a group those up to the verb; raises UsageError."""
    options = {name: parameter for parameter in command.parameters for name in parameter.names}
    values: dict[str, Any] = {}
    loose: list[str] = []
    todo = list(words)
    while todo:
        word = todo.pop(0)
        if word == "--":
            loose += todo
            break
        if word == HELP:
            return Parsed(values, True, [])
        if not word.startswith("-") or word == "-":
            loose.append(word)
            if command.commands:
                return Parsed(_complete(command, values, []), False, [*loose, *todo])
            continue
        todo = _read_option(command, options, values, word, todo)
    return Parsed(_complete(command, values, loose), False, [])


def _read_option(
    command: Command, options: Mapping[str, Parameter], values: dict[str, Any], word: str, todo: list[str]
) -> list[str]:
    """Reads an option with its value; gives the words that are left."""
    name, joined, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
    option = options.get(name)
    if option is None:
        raise usage_error(command.path, f"No such option: {name}{_suggestion(name, options)}")
    if option.kind is bool:
        values[option.name] = True
        if not joined:
            return todo
        if name.startswith("--"):
            raise usage_error(command.path, f"Option '{name}' does not take a value")
        return [f"-{value}", *todo]  # of short flags, several may be in one word
    if not joined:
        if not todo:
            raise usage_error(command.path, f"Option '{name}' requires an argument")
        value = todo.pop(0)
    read = _read(command, option, name, value)
    values[option.name] = [*values.get(option.name, ()), read] if option.many else read
    return todo


def _complete(command: Command, values: dict[str, Any], loose: list[str]) -> dict[str, Any]:
    """The values with the words that are no options, and defaults; raises UsageError if one lacks or is too many."""
    left = list(loose)
    for one in command.parameters:
        shown = one.names[0] if one.names else one.says.metavar
        if not one.names and left:
            taken, left = (left, []) if one.many else (left[:1], left[1:])
            read = [_read(command, one, shown, word) for word in taken]
            values[one.name] = read if one.many else read[0]
        if one.name not in values and one.required:
            what = "option" if one.names else "argument"
            raise usage_error(command.path, f"Missing {what} '{shown}'")
    if left:
        raise usage_error(command.path, f"Got unexpected extra argument(s) ({' '.join(left)})")
    return {one.name: values.get(one.name, one.default) for one in command.parameters}


def _read(command: Command, parameter: Parameter, shown: str, text: str) -> Any:
    """A word as the value that the parameter takes."""
    if parameter.kind is int and isinstance(parameter.says, Option):
        value, problem = _number(text, parameter.says)
    elif choices := parameter.choices:
        value = parameter.kind(text) if text in choices else None
        problem = f"'{text}' is not one of {', '.join(map(repr, choices))}"
    else:
        return text
    if value is None:
        raise usage_error(command.path, f"Invalid value for '{shown}': {problem}")
    return value


def _number(text: str, option: Option) -> tuple[int | None, str]:
    """The number, or None and what is wrong."""
    least, most = option.least, option.most
    try:
        number = int(text)
    except ValueError:
        return None, f"'{text}' is no number"
    if (least is None or number >= least) and (most is None or number <= most):
        return number, ""
    return None, f"{number} is not " + (f"at least {least}" if most is None else f"from {least} to {most}")


def find(command: Command, words: Sequence[str]) -> tuple[Command, list[str]]:
    """The verb that the first word after a group's options names, and the words after it; raises UsageError."""
    if not words:
        raise usage_error(command.path, "Missing command")
    found = command.commands.get(words[0])
    if found is None:
        hint = _suggestion(words[0], [name for name in command.commands if not name.startswith("_")])
        raise usage_error(command.path, f"No such command '{words[0]}'{hint}")
    return found, list(words[1:])


def _suggestion(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    import difflib  # noqa: PLC0415 - for mistakes only

    near = difflib.get_close_matches(word, list(known), n=1)
    return f". Did you mean '{near[0]}'?" if near else ""
