"""Asking until the data are there: through lost connections and restarts of the agent, until the time is over."""

import time
from collections.abc import Callable

from dsagent.contract import ENV_TIMEOUT, ExitCode
from dsagent.entrypoints.init.answers import Part, Task
from dsagent.entrypoints.init.client import Agent
from dsagent.entrypoints.init.failure import Failure, Lost
from dsagent.entrypoints.init.quantities import human_duration
from dsagent.entrypoints.init.report import RUNNING_SECONDS, Report, say
from dsagent.entrypoints.init.settings import Settings

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
LONGEST_ORDERED_PAUSE = 60.0
_AWAY_SECONDS = 30.0  # between two lines that say so
_HINT = "see that the agent runs on this node and that the folder of its socket is mounted into this container"


class Waiting:
    """Asks one agent for one task. `task` is what it last said."""

    def __init__(self, settings: Settings, agent: Agent) -> None:
        self.task: Task | None = None
        self._settings = settings
        self._agent = agent
        self._report = Report()
        self._deadline = time.monotonic() + settings.timeout
        self._losses = 0
        self._lost: Lost | None = None
        self._said = 0.0

    def ask(self) -> Task:
        """Asks for the task, as often as it takes; raises Failure if it failed at once or the time is over."""
        while True:
            task = self._attempt(self._put)
            if task is not None:
                self._check(task)
                return task

    def wait(self, *, asked: bool) -> Task:
        """Waits until each dataset is ready; raises Failure if one fails or the time is over.

        With on_failure `source` the others are waited for first. `asked`: the task should be there already; it is
        asked for only if it is not, or has failed.
        """
        step = self._look if asked else self._put
        while True:
            task = self._attempt(step)
            before, asked = asked, False
            if task is None or (before and any(part.state == "failed" for part in self._parts(task))):
                step = self._put
                continue
            self._check(task)
            self._report.show(task)
            if all(part.state == "ready" for part in self._parts(task)):
                return task
            # Credentials are held in memory only, so an agent that was started anew waits for them.
            step = self._put if step == self._look and self._lacks_credentials(task) else self._look

    def _put(self) -> Task:
        return self._agent.put(self._left())

    def _look(self) -> Task:
        began, left = time.monotonic(), self._left()
        # What is over already does not change any more: the first look does not wait.
        task = self._agent.get(min(RUNNING_SECONDS, left) if self.task else 0.0, left)
        if task is None:
            raise Lost("it does not know the task")
        if self.task == task and time.monotonic() - began < FIRST_PAUSE:
            self._sleep(FIRST_PAUSE)  # an agent that does not wait is not to be asked all the time
        return task

    def _attempt(self, step: Callable[[], Task]) -> Task | None:
        """What the agent answers, or None after a pause if it does not; raises Failure when the time is over."""
        if self._left() <= 0:
            raise self._late()
        try:
            task = step()
        except Lost as lost:
            self._pause(lost)
            return None
        if self._lost is not None:
            self._lost = None
            if self._said:
                say("the agent answers again")
        if step == self._look:
            self._losses, self._said = 0, 0.0
        self._take(task)
        return task

    def _take(self, task: Task) -> None:
        if any(wanted.name not in task.datasets for wanted in self._settings.datasets):
            raise Failure(ExitCode.AGENT, "the agent's answer lacks datasets that were asked for")
        self.task = task

    def _check(self, task: Task) -> None:
        """Raises Failure if a dataset has failed and nothing is left to be waited for."""
        failed = [part for part in self._parts(task) if part.state == "failed"]
        left = [part for part in self._parts(task) if part.state in ("pending", "running")]
        if failed and not (left and self._settings.on_failure == "source"):
            raise _failure(failed[0])

    def _lacks_credentials(self, task: Task) -> bool:
        return any(
            wanted.credentials
            and (part := task.datasets[wanted.name]).state == "pending"
            and part.error is not None
            and part.error.exit_code != ExitCode.STORAGE
            for wanted in self._settings.datasets
        )

    def _parts(self, task: Task | None) -> list[Part]:
        return [task.datasets[wanted.name] for wanted in self._settings.datasets] if task else []

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _pause(self, lost: Lost) -> None:
        """Waits, longer each time, and not all clients of a node equally long."""
        from random import uniform  # noqa: PLC0415 - needed only now

        self._lost = lost
        self._losses += 1
        now = time.monotonic()
        # The first loss is a restart, mostly, and over before anybody can read of it.
        if self._losses > 1 and (not self._said or now - self._said >= _AWAY_SECONDS):
            self._said = now
            left = human_duration(self._left())
            say(f"the agent at {self._settings.agent.text} does not answer: {lost}; trying for another {left}")
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._losses, 16)) * uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._sleep(max(pause, min(lost.after, LONGEST_ORDERED_PAUSE)))

    def _sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, self._left()))

    def _late(self) -> Failure:
        after = f"after {human_duration(self._settings.timeout)} ({ENV_TIMEOUT})"
        if self._lost is not None:
            text = f"cannot ask the agent at {self._settings.agent.text}: {self._lost}, still {after}; {_HINT}"
            return Failure(ExitCode.AGENT, text)
        unready = [part for part in self._parts(self.task) if part.state != "ready"]
        for part in unready:
            if part.error is not None and part.error.exit_code == ExitCode.STORAGE:
                return Failure(ExitCode.STORAGE, f"{part.name} still waits for space {after}: {part.error.detail}")
        standing = ", ".join(f"{part.name} ({part.error.detail if part.error else part.state})" for part in unready)
        hint = "the agent goes on: start the container again, or give it more time"
        return Failure(ExitCode.TIMEOUT, f"not ready {after}: {standing}; {hint}")


def _failure(part: Part) -> Failure:
    if part.error is None:
        return Failure(ExitCode.FAILURE, f"{part.name} failed, and the agent does not say why")
    return Failure(part.error.exit_code, f"{part.name}: {part.error.detail}")
