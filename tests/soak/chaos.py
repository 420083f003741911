"""What happens to an agent while it is used: kills, ends, other settings; and what happens to its sources."""

import os
import random
import signal
import time

from tests.soak.client import Shared
from tests.support import processes

CAPACITIES = ((), (), ("--capacity", "6MiB"), ("--capacity", "8MiB"))


class Chaos:
    """One thread that does it all."""

    def __init__(self, shared: Shared, seed: int) -> None:
        self._shared = shared
        self._random = random.Random(seed)
        self._steps = {self.kill: 3, self.end: 2, self.kill_worker: 4, self.limit: 6, self.change: 16}

    def step(self) -> None:
        """One of them, after a while."""
        self._shared.stop.wait(self._random.uniform(0.05, 0.6))
        step = self._random.choices(list(self._steps), list(self._steps.values()))[0]
        step()
        self._shared.counts[step.__name__] += 1

    def kill(self) -> None:
        """SIGKILL of the agent; after a while there is another one."""
        self._shared.served.kill()
        if self._random.random() < 0.3:
            time.sleep(self._random.random() / 2)  # its clients see nobody for a time
        self.start()

    def end(self) -> None:
        """SIGTERM: it drains and ends well."""
        code = self._shared.served.stop()
        assert code == 0, code
        self.start()

    def start(self) -> None:
        """Starts an agent with other settings."""
        self._shared.served.flags = (
            *("--keep-free", self._random.choice(["0B", "1MiB"])),
            *("--workers", self._random.choice(["1", "2", "3"])),
            *("--tasks", self._random.choice(["1", "2", "8"])),
            *("--drain", self._random.choice(["0.1s", "1s"])),
            *("--bandwidth", self._bandwidth()),
            *self._random.choice(CAPACITIES),
        )
        self._shared.served.start()

    def kill_worker(self) -> None:
        """SIGKILL of one of the processes that read, hash and write."""
        process = self._shared.served.process
        workers = processes.children(process.pid) if process else []
        if workers:
            try:
                os.kill(self._random.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                return
            self._shared.counts["workers killed"] += 1

    def limit(self) -> None:
        """Another bandwidth for what is under way."""
        self._shared.ask("PATCH", "/v1/limits", {"bandwidth": int(self._bandwidth().removesuffix("B"))})

    def change(self) -> None:
        """A source or store gets another version."""
        self._random.choice(list(self._shared.model.world.origins.values())).change()

    def _bandwidth(self) -> str:
        return self._random.choice(["0B", "0B", "500000B", "2000000B", "10000000B"])
