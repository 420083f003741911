"""The jobs that are replayed: from a public trace's file, or drawn from what was published of another one.

Drawn: GPUs of a job as in Microsoft's Philly trace (70 % one, 10 % two, 15 % four, 5 % eight: Narayanan et al.,
"Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020); durations log-normal with
the median of 874 s and the mean of 18,006 s that Hu et al. give for the GPU jobs of that trace (the data published with
"Characterization of Large Language Model Development in the Datacenter", NSDI 2024), none longer than a day; Poisson
arrivals.

Neither tells of data. A job uses one dataset, or two, of sizes that are log-uniform and a popularity that is Zipf's.
"""

import csv
import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

GPUS = ((1, 0.70), (2, 0.10), (4, 0.15), (8, 0.05))
MEDIAN_SECONDS, MEAN_SECONDS, LONGEST_SECONDS = 874.0, 18_006.0, 86_400.0
SMALLEST, LARGEST = 10e9, 1e12  # bytes of a dataset
SECOND_DATASET = 0.2  # of the jobs use two


@dataclass(frozen=True)
class Job:
    """`arrival` and `duration` in seconds, the latter without waiting for GPUs and data; `datasets` by number."""

    arrival: float
    duration: float
    gpus: int
    datasets: tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """Jobs in the order of their arrival, and the bytes of each dataset."""

    jobs: Sequence[Job]
    sizes: Sequence[int]


def drawn(jobs: int, datasets: int, zipf: float, gpus: int, load: float, seed: int) -> Workload:
    """So many jobs, which keep `load` of the cluster's `gpus` busy; equal for equal arguments."""
    random = Random(seed)
    sigma = math.sqrt(2 * math.log(MEAN_SECONDS / MEDIAN_SECONDS))
    shapes = [
        (
            min(LONGEST_SECONDS, random.lognormvariate(math.log(MEDIAN_SECONDS), sigma)),
            random.choices([count for count, _ in GPUS], [share for _, share in GPUS])[0],
        )
        for _ in range(jobs)
    ]
    busy = sum(duration * count for duration, count in shapes)
    arrivals = accumulate(random.expovariate(1) for _ in range(jobs))
    scale = busy / (load * gpus) / jobs  # seconds between two jobs
    sizes, chosen = _data(jobs, datasets, zipf, random)
    return Workload(
        [
            Job(arrival * scale, duration, count, wanted)
            for arrival, (duration, count), wanted in zip(arrivals, shapes, chosen, strict=True)
        ],
        sizes,
    )


def read(path: Path, jobs: int, datasets: int, zipf: float, gpus: int, load: float, seed: int) -> Workload:
    """The last GPU tasks of a file in the form of Alibaba's cluster-trace-gpu-v2023 (openb_pod_list_*.csv), so many.

    Times between arrivals are shortened or stretched by one factor, so that they keep `load` of the GPUs busy.
    Durations are as they are, but none longer than a day.
    """
    with path.open(newline="") as file:
        rows = sorted(
            (float(row["creation_time"]), float(row["deletion_time"]), int(row["num_gpu"]))
            for row in csv.DictReader(file)
            if int(row["num_gpu"])
        )
    rows = rows[-jobs:]
    shapes = [(min(LONGEST_SECONDS, max(1.0, end - begin)), count) for begin, end, count in rows]
    busy = sum(duration * count for duration, count in shapes)
    first, last = rows[0][0], rows[-1][0]
    scale = busy / (load * gpus) / (last - first)
    sizes, chosen = _data(len(rows), datasets, zipf, Random(seed))
    return Workload(
        [
            Job((begin - first) * scale, duration, count, wanted)
            for (begin, _, _), (duration, count), wanted in zip(rows, shapes, chosen, strict=True)
        ],
        sizes,
    )


def _data(jobs: int, datasets: int, zipf: float, random: Random) -> tuple[list[int], list[tuple[int, ...]]]:
    sizes = [int(SMALLEST * (LARGEST / SMALLEST) ** random.random()) for _ in range(datasets)]
    heaps = list(accumulate(1 / rank**zipf for rank in range(1, datasets + 1)))

    def one() -> int:
        return bisect(heaps, random.random() * heaps[-1])

    chosen = []
    for _ in range(jobs):
        wanted = {one()}
        if random.random() < SECOND_DATASET:
            wanted.add(one())
        chosen.append(tuple(sorted(wanted)))
    return sizes, chosen
