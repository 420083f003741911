"""The replay: jobs arrive, their workers are bound all at once or not at all, wait for their data, run and end."""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from scheduler_plugin.columns import Array
from scheduler_plugin.facts import DatasetFacts, Device, Key, PodFacts, Topology
from scheduler_plugin.filters import refuse
from scheduler_plugin.settings import Filters
from scheduler_plugin.view import View
from tools.simulate.caches import NAMESPACE, VERSION, NodeCache, key_of
from tools.simulate.outcome import Measures, Outcome
from tools.simulate.strategies import Situation, Strategy
from tools.simulate.transfers import Transfers
from tools.simulate.workload import Job, Workload

CLASSES = ("dsagent.io/gpu-roce1", "dsagent.io/gpu-roce2")


@dataclass(frozen=True)
class Shape:
    """The cluster. `rail`: GPUs of a node on each of its two rails; `cache` in bytes, the others in bytes a second:
    `source` for all nodes together, `node` the most for one flight.
    """

    nodes: int = 256
    rail: int = 4
    cache: int = 4 * 10**12
    source: float = 20e9
    node: float = 1.25e9

    @property
    def gpus(self) -> int:
        """Of all nodes."""
        return self.nodes * self.rail * len(CLASSES)


@dataclass
class Running:
    """A job whose workers are bound: `pods` with their nodes; `missing`: what it still waits for."""

    job: Job
    bound: float
    pods: list[tuple[PodFacts, int]]
    missing: set[tuple[int, int]] = field(default_factory=set)


class Replay:
    """One run of a workload by one strategy; equal seeds give equal runs."""

    def __init__(self, workload: Workload, shape: Shape, strategy: Strategy, seed: int) -> None:
        self.workload, self.shape, self.strategy = workload, shape, strategy
        self.random = Random(seed)
        self.now = 0.0
        self.view = View()
        self.names = [f"node-{number:03}" for number in range(shape.nodes)]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.caches = [NodeCache(shape.cache, workload.sizes) for _ in self.names]
        self.free = np.full((len(CLASSES), shape.nodes), shape.rail)
        self.holders: dict[Key, Array] = {}
        self.transfers = Transfers(shape.source, shape.node)
        self.waiting: dict[tuple[int, int], list[Running]] = {}
        self.queue: list[Job] = []
        self.ends: list[tuple[float, int, Running]] = []
        self.count = itertools.count()
        self.measures = Measures(shape.rail)
        self._begin()

    def run(self) -> Outcome:
        """All jobs, to the end of the last one."""
        arrivals = list(reversed(self.workload.jobs))
        while arrivals or self.queue or self.waiting or self.ends:
            arrival = arrivals[-1].arrival if arrivals else float("inf")
            end = self.ends[0][0] if self.ends else float("inf")
            flown = self.transfers.next_end()
            at = min(arrival, end, flown)
            assert at < float("inf"), "jobs are left that can never run"
            self.measures.passes(at - self.now, self.free)
            self.now = at
            if at == flown:
                self._arrived(*self.transfers.end_first())
            elif at == end:
                self._ended(heapq.heappop(self.ends)[2])
            else:
                self.queue.append(arrivals.pop())
            self._place_all()
        return self.measures.outcome(self.strategy.name, self.workload, self.now)

    def _begin(self) -> None:
        for number, size in enumerate(self.workload.sizes):
            self.view.put("Dataset", key_of(number), DatasetFacts(key_of(number), VERSION, size))
        devices = tuple(
            Device(f"{resource}-{one}", resource, rail, True, False, {})
            for rail, resource in enumerate(CLASSES)
            for one in range(self.shape.rail)
        )
        for number, name in enumerate(self.names):
            self.view.put("Node", ("", name), None)
            self.view.put("NodeTopology", ("", name), Topology(None, (), devices))
            self._tell(number)

    def _tell(self, number: int) -> None:
        """What the node's agent says has changed."""
        cache = self.caches[number]
        present = {one: self.transfers.present(self.now, (one, number)) or 0 for one in cache.coming}
        facts = cache.facts(self.shape.node, present)
        self.view.put("NodeDatasetCache", ("", self.names[number]), facts)

    def _place_all(self) -> None:
        """Every job of the queue that can be placed, in its order; smaller ones pass one that needs too many GPUs."""
        left, fewest = [], self.shape.gpus + 1
        for place, job in enumerate(self.queue):
            if job.gpus < fewest and self._place(job):
                continue
            fewest = min(fewest, job.gpus)
            left.append(job)
            if fewest == 1:
                left += self.queue[place + 1 :]
                break
        self.queue = left

    def _place(self, job: Job) -> bool:
        """Binds all workers of a job on one rail, or none."""
        rail = int(self.free.sum(axis=1).argmax())
        workers = -(-job.gpus // self.shape.rail)
        devices = {CLASSES[rail]: job.gpus // workers}
        references = tuple((key_of(one)[1], None) for one in job.datasets)
        for one in job.datasets if self.strategy.settings else ():
            for number in {number for dataset, number in self.waiting if dataset == one}:
                self._tell(number)
        number = next(self.count)
        bound: list[tuple[PodFacts, int]] = []
        for worker in range(workers):
            name = f"job-{number}-{worker}"
            pod = PodFacts(name, NAMESPACE, name, references=references, devices=devices)
            if (node := self._choose(pod, rail)) is None:
                for other, where in bound:
                    self.view.drop("Pod", (NAMESPACE, other.name))
                    self.free[rail, where] += job.gpus // workers
                return False
            self.free[rail, node] -= job.gpus // workers
            assert self.free[rail, node] >= 0, "more GPUs were given than there are"
            on = PodFacts(name, NAMESPACE, name, self.names[node], references=references, devices=devices)
            self.view.put("Pod", (NAMESPACE, name), on)
            bound.append((on, node))
        self._bind(Running(job, self.now, bound))
        return True

    def _choose(self, pod: PodFacts, rail: int) -> int | None:
        """The node with most points of those that can take the pod; by lot among equals."""
        (count,) = pod.devices.values()
        able = [self.names[number] for number in np.flatnonzero(self.free[rail] >= count).tolist()]
        needs = self.view.needs(pod)
        refused = refuse(needs, self.view.columns(able), Filters()).unresolvable if able else {}
        names = [name for place, name in enumerate(able) if place not in refused]
        if not names:
            return None
        numbers = np.array([self.numbers[name] for name in names])
        per_node = self.shape.rail * len(CLASSES)
        part = (self.free[:, numbers].sum(axis=0) - count) / per_node
        situation = Situation(part, lambda key: self._holders(key)[numbers])
        totals = self.strategy.totals(needs, self.view, names, situation)
        return int(self.random.choice(numbers[totals == totals.max()].tolist()))

    def _holders(self, key: Key) -> Array:
        if key not in self.holders:
            self.holders[key] = np.zeros(self.shape.nodes)
        return self.holders[key]

    def _bind(self, running: Running) -> None:
        """The job's data begin to come."""
        for _, number in running.pods:
            cache = self.caches[number]
            cache.users.update(running.job.datasets)
            absent = [one for one in running.job.datasets if not cache.has(one)]
            new = [one for one in absent if one not in cache.coming]
            for gone in cache.make_room(new):
                self._holders(key_of(gone))[number] = 0
            for one in new:
                cache.coming.add(one)
                self.transfers.begin(self.now, (one, number), self.workload.sizes[one])
                self.measures.fetched[one] += 1
            assert cache.free >= 0, "a cache holds more than its capacity"
            for one in absent:
                running.missing.add((one, number))
                self.waiting.setdefault((one, number), []).append(running)
            self._tell(number)
        if not running.missing:
            self._start(running)

    def _arrived(self, dataset: int, number: int) -> None:
        cache = self.caches[number]
        cache.coming.remove(dataset)
        cache.ready[dataset] = self.now
        self._holders(key_of(dataset))[number] = 1
        self._tell(number)
        for running in self.waiting.pop((dataset, number)):
            running.missing.discard((dataset, number))
            if not running.missing:
                self._start(running)

    def _start(self, running: Running) -> None:
        self.measures.started(running.job, running.bound, self.now)
        heapq.heappush(self.ends, (self.now + running.job.duration, next(self.count), running))

    def _ended(self, running: Running) -> None:
        self.measures.ended(running.job, self.now)
        for pod, number in running.pods:
            self.view.drop("Pod", (NAMESPACE, pod.name))
            ((resource, count),) = pod.devices.items()
            self.free[CLASSES.index(resource), number] += count
            cache = self.caches[number]
            cache.users.subtract(running.job.datasets)
            for one in running.job.datasets:
                cache.ready[one] = self.now
            self._tell(number)


def replay(workload: Workload, shape: Shape, strategies: Sequence[Strategy], seed: int) -> list[Outcome]:
    """A run by each strategy."""
    return [Replay(workload, shape, strategy, seed).run() for strategy in strategies]
