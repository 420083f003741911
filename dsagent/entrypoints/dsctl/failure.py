"""How a command ends when it does not succeed: what is printed, with which code, and how it is stopped."""

import logging
import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

from dsagent.core.errors import DsagentError, Interrupted, TimedOut, UsageError, local_error
from dsagent.core.problem import Problem
from dsagent.entrypoints.dsctl.render import as_json_line, say

log = logging.getLogger("dsagent")

GO_ON = "run the same command again: it goes on where this one stopped"
UNWIND_SECONDS = 0.7  # the promise is to stop within a second


class Stopped(BaseException):
    """The command is to end now. No Exception: nothing on the way may take it for a failure of its own."""

    def __init__(self, error: DsagentError) -> None:
        super().__init__(str(error))
        self.error = error


def report(problem: Problem, as_json: bool) -> None:
    """Says what failed: the last line of standard error."""
    say(as_json_line(problem) if as_json else f"dsctl: {problem.detail}")


def as_error(verb: str, error: BaseException) -> DsagentError:
    """What ended a command, as one of our errors; anything foreign that got here is a bug or the local disk's."""
    action, subject = "run", f"dsctl {verb}".strip()
    match error:
        case DsagentError():
            return error
        case OSError():
            return local_error(action, str(error.filename or subject), error)
    log.info("this is how it came about", exc_info=error)
    cause = f"{type(error).__name__}: {error}"
    return DsagentError(action, subject, cause, "this is a bug in dsagent; -v shows where it is")


def usage_error(command: str, message: str) -> UsageError:
    """What the parser refused; `command` is `dsctl` and the verb."""
    return UsageError("run", command, message, f"see {command} --help")


class Stopping:
    """Ends a command on Ctrl-C or when its time is over: in order if that is quick, at once if it is not.

    To end at once is safe, as a kill at any moment is.
    """

    def __init__(self, verb: str, as_json: bool) -> None:
        self._subject = f"dsctl {verb}".strip()
        self._as_json = as_json
        self._leaving = threading.Lock()
        self._seconds = 0.0
        self._stopped = threading.Event()
        self._error: DsagentError | None = None
        # Started now: a signal may come while the main thread is starting one, and holds the lock for that.
        threading.Thread(target=self._leave_late, name="stop", daemon=True).start()
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # a shell's background job is not to be interrupted
            signal.signal(signal.SIGINT, self._interrupted)
        signal.signal(signal.SIGALRM, self._timed_out)

    def after(self, seconds: float) -> None:
        """Stops the command when this time has passed."""
        self._seconds = seconds
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def leave(self, error: DsagentError) -> NoReturn:
        """Says why and ends the process without waiting for its threads."""
        if not self._leaving.acquire(blocking=False):
            threading.Event().wait()  # the other thread is about to end the process
        report(error.problem(), self._as_json)
        os._exit(error.exit_code)

    def _interrupted(self, _signal: int, _frame: FrameType | None) -> None:
        self._stop(Interrupted("finish", self._subject, "it was interrupted", GO_ON))

    def _timed_out(self, _signal: int, _frame: FrameType | None) -> None:
        self._stop(TimedOut("finish", self._subject, f"it took longer than {self._seconds:g} s", GO_ON))

    def _stop(self, error: DsagentError) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        self._error = error
        self._stopped.set()
        raise Stopped(error)

    def _leave_late(self) -> None:
        """Ends the process if the main thread has not done so in time."""
        self._stopped.wait()
        time.sleep(UNWIND_SECONDS)
        if self._error is not None:
            self.leave(self._error)


def prepare_for_exec() -> None:
    """Gives a program that replaces this one the signals and timers that it expects."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores these
        signal.signal(number, signal.SIG_DFL)
