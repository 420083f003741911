"""The errors a user can meet, and the exit codes of `gpu-topology`. They mean what they mean in the whole project."""

from typing import ClassVar

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_SOURCE = 3
EXIT_PERMISSION = 11


class TopologyError(Exception):
    """Base of all errors: what was being done, to what, why it failed, and what the reader can do."""

    exit_code: ClassVar[int] = EXIT_FAILURE

    def __init__(self, action: str, subject: str, cause: str, hint: str = "") -> None:
        super().__init__(action, subject, cause, hint)
        self.action = action
        self.subject = subject
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        text = f"cannot {self.action} {self.subject}: {self.cause}"
        return f"{text}; {self.hint}" if self.hint else text


class UsageError(TopologyError):
    """The request cannot be meant."""

    exit_code = EXIT_USAGE


class BadFile(TopologyError):
    """A recording, node file or override file is missing or not valid."""

    exit_code = EXIT_SOURCE


class NotPermitted(TopologyError):
    """The operating system does not allow it."""

    exit_code = EXIT_PERMISSION
