"""What a run is judged by."""

from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean, quantiles

import numpy as np
from numpy.typing import NDArray

from tools.simulate.workload import Job, Workload


@dataclass(frozen=True)
class Outcome:
    """Of one strategy. Means and percentiles over the jobs, in seconds: `data` is waiting for data, `queue` for GPUs,
    `time` from arrival to end. `waited`: GPU-hours that were held while data came. `broken`: the part of all free GPUs,
    over time, that are on a rail of a node of which others are in use.
    """

    strategy: str
    source_bytes: int
    flights: int
    data: float
    data_p95: float
    queue: float
    time: float
    waited: float
    broken: float
    seconds: float


@dataclass
class Measures:
    """Taken while a run goes on. `rail`: GPUs of a rail of a node."""

    rail: int
    fetched: Counter[int] = field(default_factory=Counter)
    _data: list[float] = field(default_factory=list)
    _queue: list[float] = field(default_factory=list)
    _time: list[float] = field(default_factory=list)
    _gpu_seconds: float = 0.0
    _free: float = 0.0
    _broken: float = 0.0

    def passes(self, seconds: float, free: NDArray[np.int64]) -> None:
        """So much time passes with so many GPUs free, by rail and node."""
        self._free += seconds * float(free.sum())
        self._broken += seconds * float(free[free < self.rail].sum())

    def started(self, job: Job, bound: float, now: float) -> None:
        """A job has its data."""
        self._data.append(now - bound)
        self._queue.append(bound - job.arrival)
        self._gpu_seconds += (now - bound) * job.gpus

    def ended(self, job: Job, now: float) -> None:
        """A job has."""
        self._time.append(now - job.arrival)

    def outcome(self, strategy: str, workload: Workload, seconds: float) -> Outcome:
        """All of it."""
        assert len(self._time) == len(workload.jobs), "a job has not ended"
        return Outcome(
            strategy,
            sum(workload.sizes[one] * times for one, times in self.fetched.items()),
            self.fetched.total(),
            fmean(self._data),
            quantiles(self._data, n=20)[-1] if len(self._data) > 1 else self._data[0],
            fmean(self._queue),
            fmean(self._time),
            self._gpu_seconds / 3600,
            self._broken / self._free if self._free else 0.0,
            seconds,
        )
