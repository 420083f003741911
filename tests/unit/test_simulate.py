"""The replay of tools.simulate: cases counted by hand, and what holds in every run."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.simulate.outcome import Outcome
from tools.simulate.replay import Replay, Shape
from tools.simulate.strategies import Strategy, strategies
from tools.simulate.transfers import Transfers
from tools.simulate.workload import Job, Workload, drawn, read

GB = 10**9
STRATEGIES = {one.name: one for one in strategies()}


def run(jobs: Sequence[Job], sizes: Sequence[int], shape: Shape, strategy: str = "exact", seed: int = 1) -> Outcome:
    return Replay(Workload(jobs, sizes), shape, STRATEGIES[strategy], seed).run()


def test_two_jobs_on_one_node_wait_for_one_flight() -> None:
    shape = Shape(nodes=1, rail=1, cache=1000 * GB, source=GB, node=GB)
    found = run([Job(0, 50, 1, (0,)), Job(10, 20, 1, (0,))], [100 * GB], shape)
    assert (found.source_bytes, found.flights) == (100 * GB, 1)
    assert found.data == pytest.approx((100 + 90) / 2)
    assert found.time == pytest.approx((150 + 110) / 2)
    assert found.waited == pytest.approx(190 / 3600)
    assert found.queue == 0
    assert found.seconds == pytest.approx(150)


def test_flights_share_the_source() -> None:
    """From 10 s on the first gets half: its 90 GB take 180 s. Then the second has 90 of 100 GB, 10 s to go."""
    shape = Shape(nodes=2, rail=1, cache=1000 * GB, source=GB, node=GB)
    found = run([Job(0, 1, 1, (0,)), Job(10, 1, 1, (0,))], [100 * GB], shape)
    assert (found.source_bytes, found.flights) == (200 * GB, 2)
    assert found.data == pytest.approx((190 + 190) / 2)
    assert found.seconds == pytest.approx(201)


def test_a_job_that_finds_no_gpu_waits_for_one_that_ends() -> None:
    shape = Shape(nodes=1, rail=1, cache=1000 * GB, source=GB, node=GB)
    found = run([Job(0, 30, 1, (0,)), Job(0, 30, 1, (0,)), Job(0, 30, 1, (0,))], [10 * GB], shape)
    assert found.queue == pytest.approx(40 / 3)
    assert found.seconds == pytest.approx(70)


def test_data_are_found_again_by_exact_and_not_by_chance() -> None:
    shape = Shape(nodes=64, rail=1, cache=1000 * GB, source=GB, node=GB)
    jobs = [Job(100 * number, 10, 1, (0,)) for number in range(20)]
    assert run(jobs, [GB], shape).flights == 1
    assert run(jobs, [GB], shape, "expected-wait").flights == 1
    assert run(jobs, [GB], shape, "least allocated").flights > 10


def test_the_longest_unused_dataset_makes_room() -> None:
    """250 GB hold two of 100: the third evicts the first, and the first, when it comes again, the third."""
    shape = Shape(nodes=1, rail=1, cache=250 * GB, source=GB, node=GB)
    jobs = [Job(1000 * number, 10, 1, (dataset,)) for number, dataset in enumerate((0, 1, 2, 1, 0, 1))]
    assert run(jobs, [100 * GB] * 3, shape).flights == 4


def test_data_of_a_running_job_stay_and_what_does_not_fit_beside_them_waits() -> None:
    shape = Shape(nodes=1, rail=1, cache=150 * GB, source=GB, node=GB)
    found = run([Job(0, 500, 1, (0,)), Job(10, 20, 1, (1,))], [100 * GB] * 2, shape)
    assert found.flights == 2
    assert found.seconds == pytest.approx(100 + 500 + 100 + 20)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_equal_seeds_give_equal_runs_and_all_bytes_are_counted(strategy: Strategy) -> None:
    shape = Shape(nodes=12, rail=2, cache=1500 * GB, source=4 * GB, node=GB)
    workload = drawn(60, 12, 1.0, shape.gpus, 0.9, seed=3)
    assert drawn(60, 12, 1.0, shape.gpus, 0.9, seed=3) == workload
    runs = [Replay(workload, shape, strategy, seed=5) for _ in range(2)]
    first, second = (one.run() for one in runs)
    assert first == second
    fetched = runs[0].measures.fetched
    assert first.source_bytes == sum(workload.sizes[one] * times for one, times in fetched.items()) > 0
    assert (runs[0].free == shape.rail).all()
    for cache in runs[0].caches:
        assert not cache.coming
        assert not any(cache.users.values())
        assert sum(workload.sizes[one] for one in cache.ready) <= shape.cache
    assert first.source_bytes / first.seconds <= shape.source
    assert first.time >= first.data + first.queue


def test_transfers_bring_every_byte_in_any_order() -> None:
    transfers = Transfers(source=10, node=4)
    for number, (begin, size) in enumerate(((0, 40), (1, 8), (2, 100), (3, 4))):
        transfers.begin(begin, (0, number), size)
    assert transfers.present(3, (0, 0)) == int(4 + 4 + 10 / 3)
    assert [transfers.end_first()[1] for _ in range(4)] == [1, 3, 0, 2]
    assert transfers.next_end() == float("inf")


def test_a_trace_is_read_and_brought_to_the_load(tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    rows = [f"pod-{number},1000,1,{number % 3},{1000 * number},{1000 * number + 60}" for number in range(100)]
    file.write_text("name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n" + "\n".join(rows))
    workload = read(file, 90, 5, 1.0, 16, 0.5, seed=1)
    assert {job.gpus for job in workload.jobs} == {1, 2}
    assert {job.duration for job in workload.jobs} == {60}
    busy = sum(job.gpus * job.duration for job in workload.jobs)
    assert busy / workload.jobs[-1].arrival == pytest.approx(0.5 * 16)
