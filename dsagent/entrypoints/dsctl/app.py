"""The verbs of dsctl, put together. Only the module of the verb that is asked for is loaded."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from dsagent.contract import ExitCode
from dsagent.entrypoints.dsctl.options import Start, every_verb, example
from dsagent.entrypoints.dsctl.parser import Command, parameters_of, parse

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
    parsed = parse(make_command(verb), verb, arguments)
    session = every_verb(start, **parsed.every)
    return parsed.verb.function(session, **parsed.values) or ExitCode.OK


def make_command(verb: str = "") -> Command:
    """The command line with this verb, or with all if there is no such verb."""
    known = verb in MODULES or verb in GROUPS
    commands = {name: _verb("dsctl", name, module) for name, module in MODULES.items() if not known or name == verb}
    for name, (text, verbs) in GROUPS.items():
        if not known or name == verb:
            path = f"dsctl {name}"
            epilog = _module(name).EXAMPLES[verbs[0]]
            commands[name] = Command(path, text, epilog, (), {one: _verb(path, one, name) for one in verbs})
    epilog = example("dsctl cache /mnt/nfs/imagenet", "dsctl run imagenet -- python train.py")
    return Command("dsctl", every_verb.__doc__ or "", epilog, parameters_of(every_verb), commands)


def _verb(path: str, name: str, module_name: str) -> Command:
    module = _module(module_name)
    function = getattr(module, name.lstrip("_"))
    return Command(f"{path} {name}", function.__doc__, module.EXAMPLES[name], parameters_of(function), {}, function)


def _module(name: str) -> Any:
    return import_module(f"dsagent.entrypoints.dsctl.{name}")
