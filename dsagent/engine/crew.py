"""Worker processes and the jobs they are given.

Workers are started as `python -m dsagent.entrypoints.worker`, never through multiprocessing: its start methods run
the caller's unguarded script again and are forbidden inside a DataLoader's worker. Jobs and replies are pickled over
pipes. One thread of the parent serves each worker, so that a reply is taken as soon as it is there.
"""

import contextlib
import fcntl
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic
from typing import IO, Any, NamedTuple, Protocol, TypeVar, cast

from dsagent.core.errors import WorkerDied
from dsagent.core.ports import Location, Source, Store

Progress = Callable[[int, int], None]
"""Takes bytes and files done since the last call; called from several threads."""


class Gate(Protocol):
    """Lets the crews of one process share its processors."""

    def workers(self, most: int) -> int:
        """How many workers, at least one, the crew should have now; it would like `most`."""

    def slot(self) -> AbstractContextManager[None]:
        """Waits until a job may run, and is left when it has."""


class OpenGate:
    """Lets every job run at once."""

    def workers(self, most: int) -> int:
        """See Gate.workers."""
        return most

    def slot(self) -> AbstractContextManager[None]:
        """See Gate.slot."""
        return contextlib.nullcontext()


PROGRESS_SECONDS = 0.2
PIPE_BYTES = 1 << 20

T = TypeVar("T")


class Opener(Protocol):
    """Opens sources and stores by location; wiring has the implementation, the same here and in the workers."""

    @property
    def descriptor(self) -> int:
        """A descriptor that the workers' opener is made from, -1 for none."""

    def source(self, location: Location) -> Source:
        """The source at `location`."""

    def store(self, location: Location) -> Store:
        """The store at `location`."""


class Tools:
    """What a job has at hand where it runs."""

    def __init__(self, opener: Opener, send: Callable[[Any], None]) -> None:
        self.open = opener
        self.slow: set[str] = set()
        """URLs of sources and stores that turned out to be worth reading with several requests at once."""
        self._send = send
        self._lock = threading.Lock()  # a job may use threads
        self._bytes = self._files = 0
        self._sent = monotonic()

    def send(self, part: Any) -> None:
        """Sends a part of the job's result."""
        with self._lock:
            self._send(part)

    def progress(self, size: int, files: int) -> None:
        """Counts bytes and files done and tells the parent, a few times a second."""
        with self._lock:
            self._bytes += size
            self._files += files
            if monotonic() - self._sent >= PROGRESS_SECONDS:
                self._sent = monotonic()
                self._tell()

    def flush(self) -> None:
        """Tells the parent what was counted and not told yet."""
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        if self._bytes or self._files:
            self._send(Done(self._bytes, self._files))
            self._bytes = self._files = 0


class Job(Protocol):
    """A piece of work; picklable."""

    def perform(self, tools: Tools, /) -> Any:
        """Does it and returns its result; `tools.send` gives parts of it before."""


class Finished(NamedTuple):
    """In place of a job whose result is known already."""

    value: Any


class Done(NamedTuple):
    """Progress since the last such message."""

    bytes: int
    files: int


class Result(NamedTuple):
    """The last message of a job."""

    value: Any


class Failure(NamedTuple):
    """The last message of a job that raised."""

    error: BaseException


class _Task(NamedTuple):
    data: bytes
    replies: "queue.Queue[Any]"


class Crew:
    """A number of workers (0: jobs run in this process, in order, when their results are asked for).

    They are started by `start`, or by the first job. `inherit` are descriptors that each worker holds as long as it
    lives: the lock of the flight it works for. `gate` says how many workers there may be now, and when one may take
    its next job. Closing ends the workers at once, by SIGKILL: they own nothing that needs an orderly end.
    """

    def __init__(
        self,
        workers: int,
        opener: Opener,
        progress: Progress,
        inherit: Sequence[int] = (),
        gate: Gate = OpenGate(),  # noqa: B008 - it has no state
    ) -> None:
        self.progress = progress
        self._gate = gate
        self._workers = workers if sys.executable else 0
        self._opener = opener
        self._inherit = inherit
        self._tasks: queue.Queue[_Task | None] = queue.Queue()
        self._closing = False
        self._lock = threading.Lock()
        self._alive = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Starts the workers, so that they load what they need while the work is still being planned."""
        wanted = self._gate.workers(self._workers) if self._workers else 0
        for _ in range(wanted - self._alive):  # those that find themselves one too many are not replaced
            process = _start(self._inherit, self._opener.descriptor)
            with self._lock:
                self._alive += 1
            thread = threading.Thread(target=self._serve, args=(process,), daemon=True)
            self._processes.append(process)
            self._threads.append(thread)
            thread.start()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def in_order(self, work: Iterable[tuple[T, Job | Finished]], ahead: int) -> Iterator[tuple[T, Any]]:
        """Performs jobs, each with a tag that stays here, with up to `ahead` given out before the first is finished.

        Yields (tag, part) for each part that a job sends and (tag, Result) at its end, in the order of the jobs.
        Raises what a job raised, and WorkerDied if a worker ends by itself.
        """
        window: deque[tuple[T, Finished | _Task]] = deque()
        for tag, job in work:
            self.start()
            if isinstance(job, Finished):
                window.append((tag, job))
            elif not self._workers:
                window.append((tag, self._perform(job)))
            else:
                task = _Task(pickle.dumps(job, protocol=5), queue.Queue(2))
                self._tasks.put(task)
                window.append((tag, task))
            if len(window) >= ahead or not self._workers:
                yield from _replies(*window.popleft())
        while window:
            yield from _replies(*window.popleft())

    def close(self) -> None:
        """Ends the workers and waits until they are gone."""
        self._closing = True
        for process in self._processes:
            process.kill()
            self._tasks.put(None)
        for process, thread in zip(self._processes, self._threads, strict=True):
            process.wait()
            thread.join()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # what was not yet written to a worker that was killed
                    cast("IO[bytes]", stream).close()

    def _perform(self, job: Job) -> _Task:
        task = _Task(b"", queue.Queue())

        def send(message: Any) -> None:
            if isinstance(message, Done):
                self.progress(message.bytes, message.files)
            else:
                task.replies.put(message)

        tools = Tools(self._opener, send)
        value = job.perform(tools)
        tools.flush()
        task.replies.put(Result(value))
        return task

    def _serve(self, process: "subprocess.Popen[bytes]") -> None:
        stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        # Asked before a job is taken: one that was put back would be behind later ones, whose results nobody takes
        # before its own.
        while not self._is_one_too_many():
            task = self._tasks.get()
            if task is None or self._closing:
                return
            try:
                with self._gate.slot():
                    stdin.write(task.data)
                    stdin.flush()
                    self._relay(stdout, task)
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                self._reply(task, Failure(_died(process, error)))
                return
            except Exception as error:  # noqa: BLE001 - of `progress`, which is the caller's: raised again there
                self._reply(task, Failure(error))
                return
        process.kill()

    def _is_one_too_many(self) -> bool:
        with self._lock:
            if self._alive <= max(1, self._gate.workers(self._workers)):
                return False
            self._alive -= 1
            return True

    def _relay(self, stdout: IO[bytes], task: _Task) -> None:
        while True:
            message = pickle.load(stdout)  # noqa: S301 - our own worker wrote it
            if isinstance(message, Done):
                self.progress(message.bytes, message.files)
                continue
            self._reply(task, message)
            if isinstance(message, Result | Failure):
                return

    def _reply(self, task: _Task, message: Any) -> None:
        while not self._closing:
            with contextlib.suppress(queue.Full):
                task.replies.put(message, timeout=PROGRESS_SECONDS)
                return


def _replies(tag: T, task: Finished | _Task) -> Iterator[tuple[T, Any]]:
    if isinstance(task, Finished):
        yield tag, Result(task.value)
        return
    while True:
        message = task.replies.get()
        if isinstance(message, Failure):
            raise message.error
        yield tag, message
        if isinstance(message, Result):
            return


def serve_jobs(opener: Opener) -> None:
    """The life of a worker: performs the jobs that come on standard input until it ends."""
    reader, writer = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not get between the replies

    def send(message: Any) -> None:
        view = memoryview(pickle.dumps(message, protocol=5))
        while view:
            view = view[writer.write(view) :]

    tools = Tools(opener, send)
    while True:
        try:
            job: Job = pickle.load(reader)  # noqa: S301 - our own parent wrote it
        except EOFError:
            return
        try:
            value = job.perform(tools)
            tools.flush()
            send(Result(value))
        except Exception as error:  # noqa: BLE001 - the parent raises it again
            send(Failure(error))


def _start(inherit: Sequence[int], opener: int) -> "subprocess.Popen[bytes]":
    package_root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")])),
        # Buffers of 8 MiB stay in the heap instead of being mapped and unmapped for every frame.
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        "MALLOC_TOP_PAD_": str(1 << 26),
    }
    # A worker ignores Ctrl-C, and until it has come to say so, it inherits that the signal is blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dsagent.entrypoints.worker", str(os.getpid()), str(opener)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=[*inherit, *([opener] if opener >= 0 else [])],
            bufsize=1 << 20,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with contextlib.suppress(OSError):  # the user's pipes may be at their limit; frames of megabytes pass through it
        fcntl.fcntl(cast("IO[bytes]", process.stdout), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return process


def _died(process: "subprocess.Popen[bytes]", error: Exception) -> WorkerDied:
    code = process.wait()
    ended = f"it was killed by signal {-code}" if code < 0 else f"it ended with status {code}"
    failure = WorkerDied(
        "work in",
        f"worker process {process.pid}",
        ended,
        "run the same command again: it goes on where this one stopped",
    )
    failure.__cause__ = error
    return failure
