"""The errors a user can meet. Each says what was being done, to what, why it failed and what to do."""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from dsagent.contract import ExitCode

if TYPE_CHECKING:
    from dsagent.core.problem import Problem

PROBLEM_BASE = "https://dsagent.io/problems/"


class DsagentError(Exception):
    """Base of all errors.

    `action` is what was being done ("pack"), `subject` to what ("/data/imgs"), `cause` why it failed and `hint`
    what the reader can do. `paths` names every entry concerned.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILURE
    title: ClassVar[str] = "The command failed"

    def __init__(self, action: str, subject: str, cause: str, hint: str = "", paths: Sequence[bytes] = ()) -> None:
        super().__init__(action, subject, cause, hint, paths)
        self.action = action
        self.subject = subject
        self.cause = cause
        self.hint = hint
        self.paths = tuple(paths)

    def __str__(self) -> str:
        shown = ", ".join(show_path(path) for path in self.paths[:10])
        if len(self.paths) > 10:
            shown += f" and {len(self.paths) - 10} more"
        text = f"cannot {self.action} {self.subject}: {self.cause}"
        if shown:
            text += f": {shown}"
        return f"{text}; {self.hint}" if self.hint else text

    @classmethod
    def problem_type(cls) -> str:
        """The type of its RFC 9457 problems."""
        return PROBLEM_BASE + "".join("-" + c.lower() if c.isupper() else c for c in cls.__name__).strip("-")

    def problem(self) -> "Problem":
        """The same as an RFC 9457 problem."""
        from dsagent.core.problem import Problem  # noqa: PLC0415 - workers start without

        return Problem(
            type=self.problem_type(),
            title=self.title,
            detail=str(self),
            action=self.action,
            subject=self.subject,
            cause=self.cause,
            hint=self.hint,
            exit_code=int(self.exit_code),
            paths=[show_path(path) for path in self.paths],
        )


class UsageError(DsagentError):
    """The request cannot be meant: a bad name, size, option or combination."""

    exit_code = ExitCode.USAGE
    title = "The request is not valid"


class SourceError(DsagentError):
    """The source is missing or unreadable, or has entries that cannot be kept."""

    exit_code = ExitCode.SOURCE
    title = "The source cannot be read"


class InsufficientStorage(DsagentError):
    """Bytes, inodes, quota or a directory's size do not suffice."""

    exit_code = ExitCode.STORAGE
    title = "Not enough storage"


class DigestMismatch(DsagentError):
    """Content differs from the manifest."""

    exit_code = ExitCode.DIGEST
    title = "Content differs from the manifest"


class SourceChanged(DsagentError):
    """The source changed while it was read."""

    exit_code = ExitCode.CHANGED
    title = "The source changed while it was read"


class AgentUnreachable(DsagentError):
    """No agent answers, or it went away."""

    exit_code = ExitCode.AGENT
    title = "The agent cannot be reached"


class InUse(DsagentError):
    """A lease holds what was to be removed."""

    exit_code = ExitCode.IN_USE
    title = "The dataset is in use"


class TimedOut(DsagentError):
    """The time limit passed."""

    exit_code = ExitCode.TIMEOUT
    title = "The time limit passed"


class BadStore(DsagentError):
    """A store or manifest is not valid or lacks what it names."""

    exit_code = ExitCode.STORE
    title = "The store is not valid"


class NotPermitted(DsagentError):
    """Permission denied by the operating system or the object store."""

    exit_code = ExitCode.PERMISSION
    title = "Not permitted"


class UnfitRoot(DsagentError):
    """The cache root cannot be used."""

    exit_code = ExitCode.ROOT
    title = "The cache root cannot be used"


class NotCached(DsagentError):
    """No such dataset here."""

    exit_code = ExitCode.NOT_FOUND
    title = "No such dataset here"


class WorkerDied(DsagentError):
    """A worker process ended before its work was done."""

    title = "A worker process died"


class ClusterUnreachable(DsagentError):
    """The Kubernetes API does not answer, or answers that it cannot now."""

    title = "The Kubernetes API cannot be reached"


class ClusterRefused(DsagentError):
    """The Kubernetes API refused a request."""

    title = "The Kubernetes API refused the request"


class NoSuchObject(ClusterRefused):
    """There is no such Kubernetes object, or no such kind of objects."""

    title = "No such Kubernetes object"


class ObjectConflict(ClusterRefused):
    """The object exists already, or is not any more what the request expects."""

    title = "The Kubernetes object has changed"


class HistoryGone(ClusterRefused):
    """The API server does not know any more what happened since then: list anew."""

    title = "The Kubernetes API has forgotten what happened since"


class Interrupted(DsagentError):
    """The user stopped the command."""

    exit_code = ExitCode.INTERRUPTED
    title = "Interrupted"


def error_of(problem: "Problem") -> DsagentError:
    """The error that a problem tells of; one of a type that is not known here has its exit code from another."""
    by_code = {int(kind.exit_code): kind for kind in DsagentError.__subclasses__()}
    by_type = {kind.problem_type(): kind for kind in DsagentError.__subclasses__()}
    by_code[ExitCode.FAILURE] = DsagentError
    kind = by_type.get(problem.type, by_code.get(problem.exit_code, DsagentError))
    paths = [path.encode("utf-8", "surrogateescape") for path in problem.paths]
    return kind(problem.action, problem.subject, problem.cause, problem.hint, paths)


def show_path(path: bytes) -> str:
    """A path as printable text; bytes that are not UTF-8 and control characters become escapes."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_STORAGE = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file is larger than the filesystem allows",
    errno.EMLINK: "too many links or subdirectories",
}


def local_error(action: str, subject: str, error: OSError) -> DsagentError:
    """What an OSError met on the local disk (root or store directory) means to the user."""
    text = error.strerror or str(error)
    if error.errno in _STORAGE:
        return InsufficientStorage(
            action, subject, f"{_STORAGE[error.errno]} ({text})", "free space, or evict: dsctl evict --need SIZE"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return NotPermitted(action, subject, text, "check the owner and mode of the path and how it is mounted")
    return DsagentError(action, subject, text)


def source_changed(source: str, path: bytes) -> SourceChanged:
    """A file of a source was not, while it was read, what the listing said."""
    return SourceChanged(
        "read", source, "it changed while it was read", "run it again when nothing writes there", [path]
    )


def source_error(action: str, subject: str, error: OSError, paths: Sequence[bytes] = ()) -> DsagentError:
    """What an OSError met while reading a source means to the user."""
    return SourceError(action, subject, error.strerror or str(error), "check that it exists and can be read", paths)
