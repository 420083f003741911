"""What --help prints."""

from collections.abc import Iterator, Sequence
from textwrap import fill, wrap

from dsagent.entrypoints.dsctl.parser import HELP, Command, Parameter

WIDTH = 78
LABELS = 32  # columns, at most


def help_text(command: Command) -> str:
    """What --help prints."""
    arguments = [one for one in command.parameters if not one.names]
    words = [one.says.metavar if one.required else f"[{one.says.metavar}]" for one in arguments]
    usage = " ".join([command.path, "[OPTIONS]", *(["COMMAND [ARGS]..."] if command.commands else words)])
    paragraphs = [" ".join(paragraph.split()) for paragraph in command.help.split("\n\n")]
    text = "\n\n".join(fill(one, WIDTH, initial_indent="  ", subsequent_indent="  ") for one in paragraphs)
    options = [(_option_label(one), _described(one)) for one in command.parameters if one.names]
    sections = {
        "Arguments": [(one.says.metavar, _described(one)) for one in arguments],
        "Options": [*options, (HELP, "Show this message and exit.")],
        "Commands": [
            (name, " ".join(found.help.partition("\n\n")[0].split()))
            for name, found in command.commands.items()
            if not name.startswith("_")
        ],
    }
    shown = [f"{title}:\n{_columns(rows)}" for title, rows in sections.items() if rows]
    return "\n\n".join([f"Usage: {usage}", text, *shown, command.epilog]) + "\n"


def _option_label(option: Parameter) -> str:
    return " ".join(filter(None, [", ".join(sorted(option.names, key=len)), option.label]))


def _described(one: Parameter) -> str:
    notes = "  [required]" if one.required else f"  [default: {one.default}]" if one.default else ""
    return one.says.help + notes


def _columns(rows: Sequence[tuple[str, str]]) -> str:
    width = min(LABELS, max(len(label) for label, _ in rows) + 4)
    return "\n".join(line for label, text in rows for line in _row(label, text, width))


def _row(label: str, text: str, width: int) -> Iterator[str]:
    first, *rest = wrap(text, WIDTH - width) or [""]
    if len(label) + 4 > width:
        yield f"  {label}"
        yield f"{'':{width}}{first}"
    else:
        yield f"  {label:{width - 2}}{first}"
    for line in rest:
        yield f"{'':{width}}{line}"
