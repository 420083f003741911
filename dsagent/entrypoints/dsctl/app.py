"""The verbs of dsctl, put together. Only the module of the verb that is asked for is loaded."""

from importlib import import_module
from typing import Any

import typer

from dsagent.entrypoints.dsctl.options import Start, every_verb, example

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


def invoke(arguments: list[str], verb: str, start: Start) -> None:
    """Parses the arguments and runs their verb; raises what it raises, and the parser's own errors."""
    command = make_command(verb)
    with command.make_context("dsctl", arguments, obj=start) as context:
        command.invoke(context)


def make_command(verb: str = "") -> Any:
    """The command line with this verb, or with all if there is no such verb."""
    app = _group(example("dsctl cache /mnt/nfs/imagenet", "dsctl run imagenet -- python train.py"))
    known = verb in MODULES or verb in GROUPS
    for name, module in MODULES.items():
        if not known or name == verb:
            _add(app, module, name)
    for name, (text, verbs) in GROUPS.items():
        if not known or name == verb:
            group = typer.Typer(rich_markup_mode=None)
            for one in verbs:
                _add(group, name, one)
            app.add_typer(group, name=name, help=text, epilog=_module(name).EXAMPLES[verbs[0]])
    return typer.main.get_command(app)


def _group(epilog: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback(epilog=epilog)(every_verb)
    return app


def _add(app: typer.Typer, module_name: str, name: str) -> None:
    module = _module(module_name)
    hidden = name.startswith("_")
    app.command(name, epilog=module.EXAMPLES[name], hidden=hidden)(getattr(module, name.lstrip("_")))


def _module(name: str) -> Any:
    return import_module(f"dsagent.entrypoints.dsctl.{name}")
