"""The agent: hits under load, many askers at once, what it costs beside the embedded command, and at rest."""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.bench import trees
from tools.bench.agents import Agent, Connection, agent
from tools.bench.disk import loop_ext4, remove, settle
from tools.bench.setting import GIB, MEMORY, Dsctl, Setting
from tools.bench.timing import Contender, Result, race
from tools.bench.trees import Shape

RATE = 200
CALLS = RATE * 20
PUT_SECONDS = "dsagent_http_request_seconds"
LABELS = 'method="PUT",route="/v1/tasks/{task_id}"'
WITHIN, COUNT = f'{PUT_SECONDS}_bucket{{le="0.01",{LABELS}}}', f"{PUT_SECONDS}_count{{{LABELS}}}"
CLIENTS = 1000
FOUR = 4
IDLE_SECONDS = 60
THROUGH, EMBEDDED = "dsctl cache through the agent", "dsctl cache"
AT_ONCE, AS_ONE = "four datasets at once", "their bytes as one dataset"


def agent_hits(setting: Setting) -> Result:
    """Calls that name a version that is present, and memory and CPU time of the agent at rest after them."""
    versions = 50 if setting.quick else 1000
    result = Result("agent_hits", f"The agent with {versions:,} versions: a call that finds its dataset present")
    with loop_ext4(MEMORY, 2 * GIB, ["-N", "200000"]) as disk:
        for number in range(versions):
            folder = disk / "sources" / f"d{number}"
            folder.mkdir(parents=True)
            (folder / "file").write_text(str(number))
        with agent(disk / "root", disk) as running:
            with ThreadPoolExecutor(8) as pool:
                infos = pool.map(
                    lambda number: running.cache(f"first-{number}", disk / "sources" / f"d{number}"), range(versions)
                )
                known = [(number, info["datasets"][0]["version"]) for number, info in enumerate(infos)]
            _rest(running)
            setting.say(f"  {versions} versions are here")
            entries = _entries_alone(disk / "alone")
            told, cpu, waiting = running.metrics(), running.cpu_seconds(), running.waited_for_cpu()
            waits, late = _open_loop(running, [_hit(disk, *known[turn % versions], turn) for turn in range(CALLS)])
            after = running.metrics()
            result.note(f"HTTP call at {RATE} calls/s, median", _part(waits, 0.5) * 1000, "ms")
            result.note(f"HTTP call at {RATE} calls/s, p99", _part(waits, 0.99) * 1000, "ms", 10)
            within, calls = (after[name] - told.get(name, 0) for name in (WITHIN, COUNT))
            result.note("of them inside the agent within 10 ms", 100 * within / calls, "%")
            result.note("what a client woke up late itself, p99", _part(late, 0.99) * 1000, "ms")
            result.note("a folder, a link and a file alone, p99", _part(entries, 0.99) * 1000, "ms")
            result.note("agent's CPU time a call", (running.cpu_seconds() - cpu) / CALLS * 1000, "ms")
            result.note("agent's wait for a CPU a call", (running.waited_for_cpu() - waiting) / CALLS * 1000, "ms")
            result.seconds["HTTP call"] = sorted(waits)[:: max(1, len(waits) // 100)]
            _rest(running)
            before, begun = running.cpu_seconds(), time.perf_counter()
            time.sleep(10 if setting.quick else IDLE_SECONDS)
            share = (running.cpu_seconds() - before) / (time.perf_counter() - begun)
            result.note("idle agent, CPU", share * 100, "% of a core", 0.5)
            result.note("idle agent, PSS", running.pss() / 1e6, "MB", 80)
    return result


Call = Callable[[Connection], None]


def _hit(disk: Path, number: int, version: str, turn: int) -> Call:
    dataset = {"name": f"d{number}", "source": str(disk / "sources" / f"d{number}"), "version": version}

    def call(connection: Connection) -> None:
        document = {"owner": {"name": "bench", "uid": f"hit-{turn}"}, "datasets": [dataset], "keep_seconds": 600}
        info = connection.ask("PUT", f"/v1/tasks/hit-{turn}", document)
        while info["state"] in ("pending", "running"):
            info = connection.ask("GET", f"/v1/tasks/hit-{turn}?wait=60")
        if info["datasets"][0]["outcome"] != "hit":
            raise RuntimeError(f"not a hit: {info}")

    return call


def _rest(running: Agent) -> None:
    """Waits until what was done before has ended, such as the upkeep's wait for the disk: for two minutes at most."""
    for _ in range(24):
        before = running.cpu_seconds()
        time.sleep(5)
        if running.cpu_seconds() - before < 0.05:
            return


def _part(seconds: Sequence[float], part: float) -> float:
    return statistics.quantiles(seconds, n=1000)[int(part * 1000) - 1]


def _entries_alone(folder: Path) -> list[float]:
    """Seconds that it takes to make what a call makes on the disk, without an agent, at the same rate for a while."""
    folder.mkdir()
    seconds = []
    for turn in range(RATE * 5):
        begun = time.perf_counter()
        (folder / f"{turn}").mkdir()
        (folder / f"{turn}" / "link").symlink_to("../somewhere")
        (folder / f"{turn}.json").write_bytes(b"x" * 500)
        seconds.append(time.perf_counter() - begun)
        time.sleep(max(0.0, 1 / RATE - seconds[-1]))
    return seconds


def _open_loop(running: Agent, calls: Sequence[Call]) -> tuple[list[float], list[float]]:
    """Makes the calls at RATE a second, whether those before are answered or not. How long each took, in seconds, from
    the moment it was due; and by how much those that slept until then woke up too late.
    """
    threads = 16
    begun = time.perf_counter() + 0.1
    waits: list[float] = []
    late: list[float] = []
    failures: list[Exception] = []

    def work(first: int) -> None:
        with contextlib.closing(running.connection()) as connection:
            for turn in range(first, len(calls), threads):
                due = begun + turn / RATE
                if (pause := due - time.perf_counter()) > 0:
                    time.sleep(pause)
                    late.append(time.perf_counter() - due)
                try:
                    calls[turn](connection)
                except RuntimeError as error:
                    failures.append(error)
                waits.append(time.perf_counter() - due)

    workers = [threading.Thread(target=work, args=(first,)) for first in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return waits, late


def agent_cache(setting: Setting) -> Result:
    """The same caching through the agent and embedded."""
    result = Result("agent_cache", f"Cache {setting.many.files:,} files through the agent")
    with loop_ext4(MEMORY, 8 * GIB) as disk:
        tree = trees.make(disk / "source", setting.many)
        store, folder = disk / "store", disk / "run"
        folder.mkdir()
        Dsctl(disk / "unused").run("pack", tree.root, store, "--name", "bench")
        embedded, served = Dsctl(disk / "embedded"), Dsctl(disk / "served")
        with agent(disk / "served", folder):

            def evict() -> None:
                served.run("evict", "bench")
                settle(disk)

            def clean() -> None:
                remove(disk / "embedded")
                settle(disk)

            contenders = [
                Contender(THROUGH, lambda: served.run("cache", store), clean=evict),
                Contender(EMBEDDED, lambda: embedded.run("cache", store), clean=clean),
            ]
            result.seconds = race(contenders, setting.rounds, setting.say)
    result.ratio(THROUGH, EMBEDDED, 1.03)
    return result


def agent_four(setting: Setting) -> Result:
    """Four datasets at once against one with all their files."""
    files = setting.many.files // FOUR
    result = Result("agent_four", f"Four datasets of {files:,} files at once")
    with loop_ext4(MEMORY, 8 * GIB) as disk:
        sources = []
        for number in range(FOUR):
            tree = trees.make(disk / "all" / f"part{number}", Shape(files, 4 << 10, 28 << 10))
            sources.append(disk / f"store{number}")
            Dsctl(disk / "unused").run("pack", tree.root, sources[-1], "--name", f"part{number}")
        Dsctl(disk / "unused").run("pack", disk / "all", disk / "store", "--name", "all")
        with agent(disk / "root", disk) as running:

            def clean() -> None:
                with contextlib.closing(running.connection()) as connection:
                    for task in connection.ask("GET", "/v1/tasks"):
                        connection.ask("DELETE", f"/v1/tasks/{task['id']}")
                Dsctl(disk / "root").run("evict", "--need", "4GiB")
                for name in ("all", *(f"part{number}" for number in range(FOUR))):
                    with contextlib.suppress(RuntimeError):  # evicted already
                        Dsctl(disk / "root").run("evict", name)
                settle(disk)

            contenders = [
                Contender(AT_ONCE, lambda: running.cache("four", *sources), clean=clean),
                Contender(AS_ONE, lambda: running.cache("one", disk / "store"), clean=clean),
            ]
            result.seconds = race(contenders, setting.rounds, setting.say)
    result.ratio(AT_ONCE, AS_ONE, 1.1)
    return result


def agent_crowd(setting: Setting) -> Result:
    """A thousand clients that ask for the same dataset at once."""
    clients = 100 if setting.quick else CLIENTS
    result = Result("agent_crowd", f"{clients:,} clients ask for the same dataset at once")
    with loop_ext4(MEMORY, 4 * GIB) as disk:
        tree = trees.make(disk / "source", setting.many)
        with agent(disk / "root", disk) as running:
            peak = 0
            over = threading.Event()

            def watch() -> None:
                nonlocal peak
                while not over.wait(0.05):
                    peak = max(peak, running.pss())

            watcher = threading.Thread(target=watch)
            watcher.start()
            begun = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                infos = list(pool.map(lambda number: running.cache(f"crowd-{number}", tree.root), range(clients)))
            result.seconds["all served"] = [time.perf_counter() - begun]
            over.set()
            watcher.join()
            served = sum(info["state"] == "ready" for info in infos)
            metrics = running.metrics()
            result.note("served", served, "clients")
            result.note("listings", metrics["dsagent_listings_total"], "", 1)
            result.note("flights", metrics['dsagent_datasets_total{outcome="fetched"}'], "", 1)
            result.note("peak PSS", peak / 1e6, "MB", 300)
    return result
