"""The verbs of dsctl, put together."""

import typer

from dsagent.entrypoints.dsctl import fill, run
from dsagent.entrypoints.dsctl.options import Start, every_verb, example


def invoke(arguments: list[str], start: Start) -> None:
    """Parses the arguments and runs their verb; raises what it raises, and the parser's own errors."""
    command = typer.main.get_command(_verbs())
    with command.make_context("dsctl", arguments, obj=start) as context:
        command.invoke(context)


def _verbs() -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback(epilog=example("dsctl cache /mnt/nfs/imagenet", "dsctl run imagenet -- python train.py"))(every_verb)
    verb = app.command
    verb(epilog=example("dsctl pack /mnt/nfs/imagenet /mnt/nfs/stores/imagenet"))(fill.pack)
    verb(
        epilog=example("dsctl cache /mnt/nfs/stores/imagenet", "dsctl cache s3://data/coco --lease me --lease-for 8h")
    )(fill.cache)
    verb(epilog=example("dsctl run imagenet,s3://data/coco -- torchrun train.py"))(run.run)
    return app
