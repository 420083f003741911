"""A worker process: performs the jobs of its parent and dies with it."""

import ctypes
import gc
import os
import signal
import sys

from dsagent.adapters.throttle import Throttle
from dsagent.engine.crew import serve_jobs
from dsagent.wiring import Wiring

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serves jobs from standard input until it ends or the parent dies. Arguments: the parent's pid, and the
    descriptor of the throttle or -1.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it died before the line above
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.umask(0)
    gc.disable()  # jobs make many small objects and no cycles
    throttle = int(sys.argv[2])
    serve_jobs(Wiring(Throttle(throttle) if throttle >= 0 else None))


if __name__ == "__main__":
    main()
