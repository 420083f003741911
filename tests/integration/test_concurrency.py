"""Several commands on one root: one flight a version, and an interrupted one that is gone on with."""

import os
import signal
from pathlib import Path

import pytest

from dsagent.engine import journal
from tests.support import trees
from tests.support.command import Dsctl

FILES = 2_000


@pytest.fixture
def store(scratch: Path) -> Path:
    trees.make_files(scratch / "tree", FILES)
    Dsctl(scratch / "packing").ok("pack", scratch / "tree", scratch / "store", "--files-per-bundle", "100")
    return scratch / "store"


def test_two_make_one_flight_and_the_second_shows_its_progress(scratch: Path, store: Path) -> None:
    """The first is stopped in the middle, so that the second certainly meets it; it is the first that fetches."""
    dsctl = Dsctl(scratch / "root", {"DSAGENT_WORKERS": "1"})
    first = dsctl.start("-v", "cache", store, "-o", "json")
    assert first.stderr is not None
    for line in first.stderr:
        if line.strip() == b"step: fetch":
            os.killpg(first.pid, signal.SIGSTOP)
            break
    second = dsctl.start("-v", "cache", store, "--progress", "plain", "-o", "json")
    assert second.stderr is not None
    shown = b""
    for line in second.stderr:
        shown += line
        if line.startswith(b"wait for"):
            os.killpg(first.pid, signal.SIGCONT)
            break
    outs = [process.communicate() for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outs
    assert b'"outcome": "fetched"' in outs[0][0]
    assert b'"outcome": "hit"' in outs[1][0]
    assert b"step: fetch" not in shown + outs[1][1]
    (data,) = dsctl.visible().values()
    trees.assert_published(data, trees.look(scratch / "tree"))


def test_eight_at_once_make_one_flight(scratch: Path, store: Path) -> None:
    dsctl = Dsctl(scratch / "root", {"DSAGENT_WORKERS": "1"})
    processes = [dsctl.start("cache", store, "-o", "json") for _ in range(8)]
    outs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(b'"outcome": "fetched"' in out for out in outs) == [False] * 7 + [True]
    (data,) = dsctl.visible().values()
    trees.assert_published(data, trees.look(scratch / "tree"))


def test_ctrl_c_leaves_what_is_done_to_go_on_with(scratch: Path, store: Path) -> None:
    dsctl = Dsctl(scratch / "root", {"DSAGENT_WORKERS": "1"})
    process = dsctl.start("cache", store, "-o", "json")
    while process.poll() is None:
        journals = list(dsctl.root.glob("staging/*/journal"))
        if journals and journal.read(str(journals[0])):
            os.killpg(process.pid, signal.SIGINT)
            break
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b""), err
    assert b"goes on where this one stopped" in err
    assert dsctl.visible() == {}
    (staged,) = dsctl.root.glob("staging/*")
    done = journal.read(str(staged / "journal"))
    before = trees.inodes(staged / "data")
    assert done
    path = Path(dsctl.ok("cache", store)["path"])
    trees.assert_published(path, trees.look(scratch / "tree"))
    kept = sum(before.get(file) == inode for file, inode in trees.inodes(path).items())
    assert kept >= 100 * len(done)
