"""What a person can meet who starts the plugin."""

from typing import ClassVar

from dsagent.contract import ExitCode


class PluginError(Exception):
    """What was being done, to what, why it failed, and what to do."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE

    def __init__(self, action: str, subject: str, cause: str, hint: str = "") -> None:
        super().__init__(action, subject, cause, hint)
        self.action, self.subject, self.cause, self.hint = action, subject, cause, hint

    def __str__(self) -> str:
        text = f"cannot {self.action} {self.subject}: {self.cause}"
        return f"{text}; {self.hint}" if self.hint else text


class BadSetting(PluginError):
    """A flag or a file that was given cannot be used."""

    exit_code = ExitCode.USAGE


class NoCluster(PluginError):
    """The Kubernetes API cannot be asked."""

    exit_code = ExitCode.NOT_FOUND
