"""A worker process: performs the jobs of its parent and dies with it."""

import ctypes
import gc
import os
import signal
import sys

from dsagent.engine.crew import serve_jobs
from dsagent.wiring import Wiring

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serves jobs from standard input until it ends or the parent, whose pid is the argument, dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it died before the line above
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.umask(0)
    gc.disable()  # jobs make many small objects and no cycles
    serve_jobs(Wiring())


if __name__ == "__main__":
    main()
