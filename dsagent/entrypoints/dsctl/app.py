"""The verbs of dsctl, put together. Only the module of the verb that is asked for is loaded."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from dsagent import __version__
from dsagent.contract import ExitCode
from dsagent.entrypoints.dsctl.options import Start, every_verb, example
from dsagent.entrypoints.dsctl.parser import Command, find, parameters_of, parse

MODULES = {
    "pack": "fill",
    "cache": "fill",
    "run": "run",
    "ls": "look",
    "path": "look",
    "df": "look",
    "verify": "keep",
    "evict": "keep",
    "diff": "look",
    "doctor": "keep",
    "tasks": "tasks",
    "watch": "tasks",
    "top": "top",
    "explain": "explain",
    "completion": "completion",
    "_complete": "completion",
}
GROUPS = {
    "lease": ("Who uses which dataset, until when.", ("add", "renew", "release", "ls")),
    "store": ("Look after a store.", ("check", "forget", "prune")),
}


def invoke(arguments: Sequence[str], verb: str, start: Start) -> int:
    """Parses the arguments and runs their verb; gives its exit code, raises what it raises and UsageError."""
    command = make_command(verb)
    parsed = parse(command, arguments)
    if parsed.help:
        return _show_help(command)
    if parsed.values.pop("version"):
        sys.stdout.write(f"dsctl {__version__}\n")
        return ExitCode.OK
    session = every_verb(start, **parsed.values)
    while command.function is None:
        command, words = find(command, parsed.rest)
        parsed = parse(command, words)
        if parsed.help:
            return _show_help(command)
    return command.function(session, **parsed.values) or ExitCode.OK


def make_command(verb: str = "") -> Command:
    """The command line with this verb, or with all if there is no such verb."""
    known = verb in MODULES or verb in GROUPS
    commands = {name: _verb("dsctl", name, module) for name, module in MODULES.items() if not known or name == verb}
    for name, (text, verbs) in GROUPS.items():
        if not known or name == verb:
            path = f"dsctl {name}"
            epilog = _module(name).EXAMPLES[verbs[0]]
            commands[name] = Command(path, text, epilog, None, (), {one: _verb(path, one, name) for one in verbs})
    epilog = example("dsctl cache /mnt/nfs/imagenet", "dsctl run imagenet -- python train.py")
    return Command("dsctl", every_verb.__doc__ or "", epilog, None, parameters_of(every_verb), commands)


def _verb(path: str, name: str, module_name: str) -> Command:
    module = _module(module_name)
    function = getattr(module, name.lstrip("_"))
    return Command(f"{path} {name}", function.__doc__, module.EXAMPLES[name], function, parameters_of(function))


def _module(name: str) -> Any:
    return import_module(f"dsagent.entrypoints.dsctl.{name}")


def _show_help(command: Command) -> int:
    from dsagent.entrypoints.dsctl.help_text import help_text  # noqa: PLC0415 - for help only

    sys.stdout.write(help_text(command))
    return ExitCode.OK
