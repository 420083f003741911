"""dsctl completion: scripts for shells, and the candidates that they ask for."""

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from dsagent.core.errors import DsagentError
from dsagent.entrypoints.dsctl.arguments import hoist
from dsagent.entrypoints.dsctl.options import example
from dsagent.entrypoints.dsctl.parser import Argument
from dsagent.entrypoints.dsctl.session import Session
from dsagent.service.settings import Flags

if TYPE_CHECKING:
    from dsagent.entrypoints.dsctl.parser import Command

TAKE_DATASETS = ("run", "path", "verify", "evict", "diff", "lease")

PATIENCE_SECONDS = 0.5  # somebody waits for the key that was pressed

BASH = r"""_dsctl() {
    local IFS=$'\n'
    COMPREPLY=($("$1" _complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _dsctl dsctl
"""
ZSH = r"""#compdef dsctl
_dsctl() {
    local -a found
    found=("${(@f)$("${words[1]}" _complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
compdef _dsctl dsctl
"""
FISH = r"""function __dsctl_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] _complete -- $words[2..-1] 2>/dev/null
end
complete -c dsctl -a '(__dsctl_complete)'
"""


class Shell(StrEnum):
    """Shells for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    _session: Session, shell: Annotated[Shell, Argument(metavar="bash|zsh|fish", help="The shell.")]
) -> None:
    """Print a script that lets a shell complete verbs, options and datasets."""
    sys.stdout.write({Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}[shell])


def complete(
    session: Session,
    words: Annotated[list[str] | None, Argument(metavar="-- WORD…", help="What was typed after dsctl.")] = None,
) -> None:
    """Print what may stand in place of the last word."""
    *before, prefix = [word for word in words or [""] if word != "="] or [""]  # bash splits --output=json at the =
    sys.stdout.writelines(f"{found}\n" for found in _candidates(session, before, prefix))


def _candidates(session: Session, before: list[str], prefix: str) -> Iterable[str]:
    head, comma, last = prefix.rpartition(",")
    return [head + comma + found for found in sorted(_possible(session, before, prefix)) if found.startswith(last)]


def _possible(session: Session, before: list[str], prefix: str) -> Iterable[str]:
    from dsagent.entrypoints.dsctl.app import make_command  # noqa: PLC0415 - it imports this module

    if "--" in before:
        return ()
    arguments = hoist(before)
    top = make_command(arguments.verb)
    command = _subcommand(top, before)
    options = [one for one in (*top.parameters, *command.parameters) if one.names]
    option = next((one for one in options if before and before[-1] in one.names), None)
    if option is not None and option.kind is not bool:
        return option.choices
    if prefix.startswith("-"):
        return [name for one in options for name in one.names if name.startswith(prefix)]
    if command.commands:
        return [name for name in command.commands if not name.startswith("_")]
    return _arguments(session, arguments.verb, arguments.ordered)


def _arguments(session: Session, verb: str, typed: Sequence[str]) -> Iterable[str]:
    """What a verb takes."""
    if verb == "completion":
        return [shell.value for shell in Shell]
    if verb == "watch":
        return _tasks(_as_typed(session, typed))
    return _datasets(_as_typed(session, typed)) if verb in TAKE_DATASETS else ()


def _subcommand(command: "Command", before: Sequence[str]) -> "Command":
    """The command that the words lead to."""
    for word in before:
        command = command.commands.get(word, command)
    return command


def _as_typed(session: Session, typed: Sequence[str]) -> Session:
    """The session with what was typed about where the cache is."""
    if "--root" in typed[:-1]:
        session.flags = Flags(root=typed[typed.index("--root") + 1])
    if "--agent" in typed[:-1]:
        session.agent_address = typed[typed.index("--agent") + 1]
    session.patience = PATIENCE_SECONDS
    return session


def _datasets(session: Session) -> Iterable[str]:
    try:
        return {info.dataset for info in session.verbs.ls()}
    except DsagentError:  # a shell has no place for it
        return ()


def _tasks(session: Session) -> Iterable[str]:
    try:
        return [task.id for task in session.agent.tasks()]
    except DsagentError:
        return ()


EXAMPLES = {
    "completion": example("source <(dsctl completion bash)"),
    "_complete": example("dsctl _complete -- path ima"),
}
