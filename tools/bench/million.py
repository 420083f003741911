"""Scanning a million entries, and asking again for a dataset of a million files that is here."""

import shlex
import sys

from tools.bench import trees
from tools.bench.disk import INLINE, loop_ext4
from tools.bench.setting import GIB, MEMORY, Dsctl, Setting, command, shell
from tools.bench.timing import Contender, Result, median, race

OURS_SCAN, FIND = "scan", "find -printf"
OURS_HIT = "dsctl cache (hit)"
SCAN = """
import sys
from dsagent.adapters.directory import DirectorySource
from dsagent.core.ports import Location
print(sum(1 for entry in DirectorySource(Location(sys.argv[1])).scan()))
"""
MKFS = [*INLINE, "-N", "3000000"]


def scan(setting: Setting) -> Result:
    """The engine's scan of a directory source against find, both in a new process."""
    result = Result("scan", f"Scan {setting.million.files:,} entries")
    with loop_ext4(MEMORY, 9 * GIB, MKFS) as disk:
        tree = trees.make_tiny(disk / "source", setting.million)
        listing = f"find {shlex.quote(str(tree.root))} -printf '%y %m %s %T@ %C@ %p\\n' > /dev/null"
        contenders = [
            Contender(OURS_SCAN, lambda: command(sys.executable, "-c", SCAN, tree.root)),
            Contender(FIND, lambda: shell(listing)),
        ]
        shell(listing)  # The first walk also reads the inodes into memory.
        result.seconds = race(contenders, setting.rounds, setting.say)
    result.ratio(OURS_SCAN, FIND, 2.0)
    return result


def hit(setting: Setting) -> Result:
    """A second `dsctl cache` of a store whose current version is here."""
    result = Result("hit", f"Hit on a store of {setting.million.files:,} files")
    inside: list[float] = []
    with loop_ext4(MEMORY, 9 * GIB, MKFS) as disk:
        tree = trees.make_tiny(disk / "source", setting.million)
        ours, store = Dsctl(disk / "root"), disk / "store"
        ours.run("pack", tree.root, store, "--name", "bench")
        ours.run("cache", store)

        def again() -> None:
            document = ours.run("cache", store)
            if document["outcome"] != "hit":
                raise RuntimeError(f"not a hit: {document}")
            inside.append(document["seconds"])

        again()
        inside.clear()
        result.seconds = race([Contender(OURS_HIT, again)], setting.rounds, setting.say)
    result.note("inside the process", median(inside) * 1000, "ms", 50)
    result.note("whole command", median(result.seconds[OURS_HIT]) * 1000, "ms", 300)
    return result
