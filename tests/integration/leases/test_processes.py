"""Leases of real processes: as long as one of them holds the descriptor, nothing evicts the version."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsagent.core.errors import InUse, NotCached, UsageError
from dsagent.service import leases
from dsagent.service.evict import evict
from dsagent.service.node import Node
from tests.integration.leases.conftest import assert_free
from tests.support.command import HANG_SECONDS, REPOSITORY, Dsctl
from tests.support.nodes import node_at, published
from tests.support.waiting import until

# What a process under test does first: it takes a lease and says so. It ends when its standard input does.
TAKE = """
import os, subprocess, sys
from pathlib import Path
from dsagent.core.space import Space
from dsagent.service import leases
from tests.support.nodes import node_at

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # one write: parent and child talk at once

node = node_at(Path(sys.argv[1]))
lease = leases.hold(node, node.find("imgs"), "a test")
"""


@pytest.fixture
def node(scratch: Path) -> Node:
    return node_at(scratch / "root")


class Holder:
    """A process that runs TAKE and then `script`, and says its words line by line."""

    def __init__(self, node: Node, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE + script, str(node.root)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hears(self) -> list[str]:
        """The next line it says, as words."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it ended without a word"
        return line.split()

    def goes_on(self) -> None:
        """Lets one `input()` of the script return."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(HANG_SECONDS)


@pytest.fixture
def start(node: Node) -> Iterator[Callable[[str], Holder]]:
    started: list[Holder] = []

    def holder(script: str) -> Holder:
        started.append(Holder(node, script))
        return started[-1]

    yield holder
    for one in started:
        one.kill()
        for stream in (one.process.stdin, one.process.stdout):
            if stream is not None:
                stream.close()


def gone(pid: int) -> None:
    """Kills a process that is nobody's child here any more, and waits for its end."""
    fd = os.pidfd_open(pid)
    signal.pidfd_send_signal(fd, signal.SIGKILL)
    os.set_blocking(fd, False)
    until(lambda: not _runs(pid))
    os.close(fd)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_held(node: Node) -> None:
    assert [info.owner for info in leases.list_leases(node)] == ["a test"]
    with pytest.raises(InUse):
        evict(node, "imgs", force=True, dry_run=False)
    assert (node.data(node.find("imgs")) / "file").read_text() == "imgs"


def test_it_ends_with_its_process(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start("say('holds'); input()")
    assert holder.hears() == ["holds"]
    assert_held(node)
    holder.goes_on()
    holder.process.wait(HANG_SECONDS)
    assert_free(node)


def test_sigkill_ends_it(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start("say('holds'); input()")
    holder.hears()
    holder.kill()
    assert_free(node)


FORK = """
child = os.fork()
if child == 0:
    os.close(0)
    say("child", os.getpid())
    import signal
    signal.pause()
"""


def test_a_forked_child_holds_it_after_the_parent_was_killed(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start(FORK + "input()")
    child = int(holder.hears()[1])
    holder.kill()
    assert_held(node)
    gone(child)
    assert_free(node)


def test_release_in_the_parent_leaves_it_to_the_child(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start(FORK + "lease.release(); lease.release(); say('released'); input()")
    words = [holder.hears(), holder.hears()]
    child = next(int(word[1]) for word in words if word[0] == "child")
    assert_held(node)
    gone(child)
    assert_free(node)


def test_release_in_the_child_leaves_it_to_the_parent(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start(
        "child = os.fork()\n"
        "if child == 0:\n    lease.release(); os._exit(0)\n"
        "os.waitpid(child, 0); say('holds'); input()"
    )
    assert holder.hears() == ["holds"]
    assert_held(node)
    holder.kill()
    assert_free(node)


PROGRAM = "program = subprocess.Popen(['sleep', '1000'], {})\nsay('program', program.pid)\ninput()\n"


def test_a_program_given_the_descriptor_holds_it(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start(PROGRAM.format("pass_fds=[lease.inheritable()]"))
    program = int(holder.hears()[1])
    holder.kill()
    assert_held(node)
    gone(program)
    assert_free(node)


def test_a_program_without_the_descriptor_does_not_hold_it(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start(PROGRAM.format(""))
    program = int(holder.hears()[1])
    holder.kill()
    assert leases.list_leases(node) == []
    gone(program)
    assert_free(node)


def test_exec_keeps_an_inheritable_lease(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start("lease.inheritable(); say('execs'); os.execvp('sleep', ['sleep', '1000'])")
    holder.hears()
    _wait_for_program(holder.process.pid, "sleep")
    assert_held(node)
    holder.kill()
    assert_free(node)


def test_exec_drops_a_lease_that_is_not_inheritable(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holder = start("say('execs'); os.execvp('sleep', ['sleep', '1000'])")
    holder.hears()
    _wait_for_program(holder.process.pid, "sleep")
    until(lambda: not leases.list_leases(node))  # the kernel closes it a moment after the program has its new name
    assert_free(node)


def _wait_for_program(pid: int, name: str) -> None:
    until(lambda: Path(f"/proc/{pid}/comm").read_text().strip() == name)


def test_what_the_command_of_dsctl_run_starts_holds_it(node: Node, scratch: Path) -> None:
    published(node, "imgs")
    command = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! $DSAGENT_DATASET_IMGS; read line"
    process = subprocess.Popen(
        Dsctl(node.root).command("run", "imgs", "--", "sh", "-c", command),
        env=Dsctl(node.root).variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    background, path = process.stdout.readline().split()
    assert path == str(node.data(node.find("imgs")))
    process.kill()
    process.communicate()
    with pytest.raises(InUse):
        evict(node, "imgs", force=True, dry_run=False)
    gone(int(background))
    assert_free(node)


def test_the_end_of_a_lease_is_a_use(node: Node, start: Callable[[str], Holder]) -> None:
    long_ago = time.time() - 10**6
    version = published(node, "imgs", used=long_ago)
    other = published(node, "coco", used=long_ago + 1)
    holder = start("say('holds'); input()")
    holder.hears()
    os.utime(node.folder(version), (long_ago, long_ago))
    holder.kill()
    leases.hold(node, other, "me").release()  # whoever takes the next lease sees that the other has ended
    assert node.find("imgs").last_used.timestamp() > long_ago + 1
    assert list(node.locks.glob(f"lease-{version.id}.*")) == []


def test_a_lease_of_an_evicted_version_is_refused(node: Node) -> None:
    version = published(node, "imgs")
    evict(node, "imgs", force=False, dry_run=False)
    for take in (
        lambda: leases.hold(node, version, "me"),
        lambda: leases.add_lease(node, version, "me", 10),
        lambda: leases.add(node, "imgs", "me", 10),
    ):
        with pytest.raises(NotCached):
            take()


def test_a_released_lease_cannot_be_passed_on(node: Node) -> None:
    lease = leases.hold(node, published(node, "imgs"), "me")
    lease.release()
    with pytest.raises(UsageError):
        lease.inheritable()


CONTEND = """
held = 0
lease.release()
say("ready")
for _ in range(60):
    try:
        version = node.find("imgs")
        lease = leases.hold(node, version, "a test")
    except leases.NotCached:
        continue
    if (node.data(version) / "file").read_text() != "imgs":
        sys.exit("evicted under a lease")
    held += 1
    lease.release()
say("held", held)
"""


def test_no_holder_ever_loses_its_data(node: Node, start: Callable[[str], Holder]) -> None:
    published(node, "imgs")
    holders = [start(CONTEND) for _ in range(3)]
    for holder in holders:
        holder.hears()
    evicted = 0
    while any(holder.process.poll() is None for holder in holders):
        try:
            evict(node, "imgs", force=True, dry_run=False)
            evicted += 1
        except InUse:
            continue
        except NotCached:
            pass
        published(node, "imgs")
    assert [holder.process.returncode for holder in holders] == [0, 0, 0]
    assert sum(int(holder.hears()[1]) for holder in holders) > 0
    assert evicted > 0
