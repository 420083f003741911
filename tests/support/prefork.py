"""Programs without the time that Python takes to import them: forks of a process that has imported them already.

A fork is a process of its own in everything but its start: its arguments, environment, folder, session and outputs are
its own, and it ends as any other does. A third of a second a command, and a second an agent, is most of what the tests
would take.
"""

import atexit
import contextlib
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

PROGRAMS = {"dsctl": "dsagent.entrypoints.dsctl", "dsagent": "dsagent.entrypoints.serve"}
# What the kernel, the loader or the interpreter reads when a program starts, or others read of it later.
_AT_START = ("LD_", "PYTHON", "MALLOC_", "TEST_MARK")
_MOST_BYTES = 1 << 20


def possible(environment: Mapping[str, str], prefix: Sequence[str]) -> bool:
    """Whether a fork can stand for a program that is started with these variables of its own, under this command."""
    return not prefix and not any(name.startswith(_AT_START) for name in environment)


class Forked:
    """A running program; what subprocess.Popen offers of it, as far as tests ask."""

    def __init__(self, program: str, arguments: Sequence[str], environment: Mapping[str, str], outputs: Sequence[int]):
        self.returncode: int | None = None
        self._news, theirs = socket.socketpair()
        request = json.dumps([program, list(arguments), dict(environment), os.getcwd()]).encode()
        assert len(request) < _MOST_BYTES
        with theirs, _starting:
            socket.send_fds(_parent(os.getpid()), [request], [theirs.fileno(), *outputs])
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
    program: str, arguments: Sequence[str], environment: Mapping[str, str], timeout: float
) -> tuple[int, bytes, bytes]:
    """Runs a program to its end: its exit code and what it printed."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    process = Forked(program, arguments, environment, [out_end, err_end])
    os.close(out_end)
    os.close(err_end)
    printed: dict[int, bytes] = {}
    readers = [threading.Thread(target=_read, args=(end, printed)) for end in (out, err)]
    for reader in readers:
        reader.start()
    try:
        code = process.wait(timeout)
    finally:
        process.kill()
        for reader in readers:
            reader.join()
    return code, printed[out], printed[err]


def _read(end: int, printed: dict[int, bytes]) -> None:
    with open(end, "rb") as file:
        printed[end] = file.read()


_starting = threading.Lock()


@cache
def _parent(_pid: int) -> socket.socket:
    """The control socket of the process that forks, started by the process that asks; it ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.prefork", str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
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
                    _forget(waiting, control, asker)
                    program, arguments, environment, folder = json.loads(request)
                    return _become(program, arguments, environment, folder, outputs)
                os.write(asker, b"%d" % pid)
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


def _become(
    program: str, arguments: list[str], environment: dict[str, str], folder: str, outputs: list[int]
) -> Callable[[], int]:
    """In a fork: takes over arguments, environment, folder and outputs."""
    os.setsid()
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
    _import_all()
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1])))())
