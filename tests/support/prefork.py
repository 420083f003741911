"""Programs without the time that Python takes to import them: forks of a process that has imported them already.

A fork is a process of its own in everything but its start: its arguments, environment, folder, session and outputs are
its own, and it ends as any other does. A third of a second a command, and a second an agent, is most of what the tests
would take.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.namespaces import keeper_of

PROGRAMS = {"dsctl": "dsagent.entrypoints.dsctl", "dsagent": "dsagent.entrypoints.serve"}
# What the kernel, the loader or the interpreter reads when a program starts, or others read of it later.
_AT_START = ("LD_", "PYTHON", "MALLOC_", "TEST_MARK")
_PRELOAD = "LD_PRELOAD"  # the process that forks is started with it
_NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS
_MOST_BYTES = 1 << 20


def possible(environment: Mapping[str, str], prefix: Sequence[str]) -> bool:
    """Whether a fork can stand for a program that is started with these variables of its own, under this command."""
    at_start = [name for name in environment if name.startswith(_AT_START) and name != _PRELOAD]
    return not at_start and (not prefix or keeper_of(prefix) is not None)


class Forked:
    """A running program; what subprocess.Popen offers of it, as far as tests ask.

    With `outputs` it writes to these descriptors, else to the pipes `stdout` and `stderr`.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        outputs: Sequence[int] = (),
        prefix: Sequence[str] = (),
    ):
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        ends: list[int] = []
        if not outputs:
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            self.stdout, self.stderr, ends = os.fdopen(out, "rb"), os.fdopen(err, "rb"), [out_end, err_end]
        self._news, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [program, list(arguments), dict(environment), os.getcwd(), keeper_of(prefix)]
        request = json.dumps(words).encode()
        assert len(request) < _MOST_BYTES
        with theirs, _starting:
            parent = _parent(os.getpid(), environment.get(_PRELOAD, ""))
            socket.send_fds(parent, [request], [theirs.fileno(), *(outputs or ends)])
        for end in ends:
            os.close(end)
        self.pid = int(self._news.recv(16))

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._news], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._news.recv(16)))
            self._news.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """What it prints until its end."""
        assert self.stdout is not None
        assert self.stderr is not None
        printed: dict[IO[bytes], bytes] = {}
        pipes = (self.stdout, self.stderr)
        readers = [threading.Thread(target=_read, args=(pipe, printed), daemon=True) for pipe in pipes]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        self.wait(timeout)
        return printed[self.stdout], printed[self.stderr]

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)


def run(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], prefix: Sequence[str], timeout: float
) -> tuple[int, bytes, bytes]:
    """Runs a program to its end: its exit code and what it printed."""
    process = Forked(program, arguments, environment, prefix=prefix)
    try:
        out, err = process.communicate(timeout)
    finally:
        process.kill()
    return process.wait(timeout), out, err


def _read(pipe: IO[bytes], printed: dict[IO[bytes], bytes]) -> None:
    with pipe:
        printed[pipe] = pipe.read()


_starting = threading.Lock()


@cache
def _parent(_pid: int, preload: str) -> socket.socket:
    """The control socket of the process that forks, started by the process that asks; it ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    variables = {_PRELOAD: preload} if preload else {}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.prefork", str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(control: socket.socket) -> Callable[[], int]:
    """Forks for each request, and says how each ends. Returns in a fork only: what that is to do."""
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is control:
                request, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, 3)
                if not request:
                    os._exit(0)
                asker, *outputs = descriptors
                if (pid := os.fork()) == 0:
                    os.setsid()
                    os.write(asker, b"%d" % os.getpid())  # who has it can end the whole group
                    _forget(waiting, control, asker)
                    program, arguments, environment, folder, keeper = json.loads(request)
                    if keeper is not None:
                        _enter(keeper)
                    return _become(program, arguments, environment, folder, outputs)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, asker))
                for output in outputs:
                    os.close(output)
            else:
                pid, asker = key.data
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    os.write(asker, b"%d" % status)
                os.close(asker)


def _forget(waiting: selectors.BaseSelector, control: socket.socket, asker: int) -> None:
    """In a fork: closes what belongs to the forks before it, each by whoever would close it later otherwise."""
    for key in waiting.get_map().values():
        if key.data is not None:
            os.close(key.fd)
            os.close(key.data[1])
    waiting.close()
    control.close()
    os.close(asker)


def _enter(keeper: int) -> None:
    """In a fork: goes into the mount namespace of a process."""
    namespace = os.open(f"/proc/{keeper}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _NEW_NAMESPACE):
        raise OSError(ctypes.get_errno(), f"cannot enter the mount namespace of process {keeper}")
    os.close(namespace)


def _become(
    program: str, arguments: list[str], environment: dict[str, str], folder: str, outputs: list[int]
) -> Callable[[], int]:
    """In a fork: takes over arguments, environment, folder and outputs."""
    for number, output in enumerate(outputs, 1):
        os.dup2(output, number)
        os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv = [program, *arguments]
    main: Callable[[], int] = importlib.import_module(PROGRAMS[program]).main
    return main


def _import_all() -> None:
    import dsagent  # noqa: PLC0415 - in the process that forks

    for module in pkgutil.walk_packages(dsagent.__path__, "dsagent."):
        if not module.name.endswith(".__main__") and ".entrypoints.worker" not in module.name:
            importlib.import_module(module.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a module starts a thread when it is imported: forks would lack it"
    gc.freeze()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests are a shell's background job
    _import_all()
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1])))())
