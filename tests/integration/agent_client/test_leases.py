"""Leases of processes that an agent gave: they outlive it, and end with the last process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import dsagent
from tests.support.agents import agent
from tests.support.command import HANG_SECONDS, Dsctl
from tests.support.trees import assert_published, look
from tests.support.waiting import until


@contextmanager
def ended(pid: int) -> Iterator[None]:
    """Whatever becomes of the test, the process does not outlive it."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_lease_of_dsctl_run_needs_no_agent_once_it_is_taken(dsctl: Dsctl, tree: Path) -> None:
    with agent(dsctl.root) as running:
        script = 'sleep 1000 </dev/null >/dev/null 2>&1 & echo $! "$DSAGENT_DATASET_TINY"; read line'
        process = subprocess.Popen(
            dsctl.command("run", tree, "--", "sh", "-c", script),
            env=dsctl.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        background, path = process.stdout.readline().split()
        assert_published(Path(path), look(tree))
        with ended(int(background)):
            dsctl.fails(8, "evict", "tiny", "--force")
            running.kill()
            assert len(dsctl.ok("lease", "ls")) == 1
            dsctl.fails(8, "evict", "tiny", "--force")
            process.kill()  # what it has started holds it
            process.communicate()
            running.start()
            dsctl.fails(8, "evict", "tiny", "--force")
        until(lambda: dsctl.ok("lease", "ls") == [])
        dsctl.ok("evict", "tiny")


def test_a_lease_of_the_library_until_its_last_process_ends(root: Path, tree: Path) -> None:
    with agent(root) as running:
        with dsagent.cache(tree, root=root) as dataset:
            (lease,) = dsagent.lease_ls(root=root)
            assert (lease.dataset, lease.expires) == ("tiny", None)
            assert str(os.getpid()) in lease.owner
            with pytest.raises(dsagent.InUse):
                dsagent.evict("tiny", force=True, agent=running.address)
            child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[dataset.lease_descriptor()])
        assert len(dsagent.lease_ls(root=root)) == 1
        child.communicate(timeout=HANG_SECONDS)
        assert dsagent.lease_ls(root=root) == []
        assert running.ask("GET", "/v1/tasks").json == []


def test_a_forked_child_keeps_the_lease(root: Path, tree: Path) -> None:
    program = """
import os, signal, sys
import dsagent
dataset = dsagent.cache(sys.argv[1], root=sys.argv[2])
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
signal.pause()
"""
    with agent(root):
        command = [sys.executable, "-c", program, str(tree), str(root)]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, env=Dsctl(root).variables())
        assert started.stdout is not None
        child = int(started.stdout.readline())
        started.wait(HANG_SECONDS)
        started.stdout.close()
        with ended(child):
            assert len(dsagent.lease_ls(root=root)) == 1
        until(lambda: dsagent.lease_ls(root=root) == [])
