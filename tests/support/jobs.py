"""Jobs for the workers of a crew, which import them from here."""

import os
import signal
from dataclasses import dataclass

from dsagent.engine.crew import Tools


@dataclass(frozen=True)
class Sends:
    """Sends `parts` numbers before its result, which is `name`."""

    name: str
    parts: int

    def perform(self, tools: Tools) -> str:
        for number in range(self.parts):
            tools.send(number)
        return self.name


@dataclass(frozen=True)
class Dies:
    """Its worker is killed, as by the kernel when memory is short."""

    def perform(self, _tools: Tools) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
