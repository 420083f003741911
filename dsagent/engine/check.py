"""Re-reading a tree against its manifest."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import xxhash

from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry
from dsagent.core.errors import show_path
from dsagent.core.manifest import Manifest
from dsagent.core.ports import Store
from dsagent.engine.crew import Crew, Tools
from dsagent.engine.manifests import read_checked
from dsagent.engine.tree import Tree

JOB_FILES = 1_000
JOB_BYTES = 64 << 20
_PIECE = 1 << 20


class BadEntry(NamedTuple):
    """An entry that is not as the manifest says, and how."""

    path: bytes
    problem: str

    def __str__(self) -> str:
        return f"{show_path(self.path)}: {self.problem}"


class Check(NamedTuple):
    """Re-reads entries below `tree` and returns those that are not as the manifest says."""

    tree: str
    entries: tuple[tuple[bytes, str, bool, int, bytes], ...]

    def perform(self, tools: Tools) -> list[BadEntry]:
        """Never raises for what it finds in the tree."""
        buffer = bytearray(_PIECE)
        bad = []
        with Tree(self.tree) as tree:
            for path, kind, executable, size, content in self.entries:
                try:
                    problem = _problem(tree, path, kind, executable, size, content, buffer)
                except OSError as error:
                    problem = "missing" if error.errno == errno.ENOENT else error.strerror or str(error)
                if problem:
                    bad.append(BadEntry(path, problem))
                tools.progress(size, kind == FILE)
        return bad


def _problem(tree: Tree, path: bytes, kind: str, executable: bool, size: int, content: bytes, buffer: bytearray) -> str:
    found = tree.status(path)
    if kind == DIRECTORY:
        return "" if stat.S_ISDIR(found.st_mode) else "not a directory"
    if kind == SYMLINK:
        same = stat.S_ISLNK(found.st_mode) and tree.read_link(path) == content
        return "" if same else "not the symlink it should be"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    if found.st_size != size:
        return f"{found.st_size} bytes instead of {size}"
    if bool(found.st_mode & 0o100) != executable:
        return "the executable bit differs"
    return "" if _digest(tree, path, buffer) == content else "the content differs"


def _digest(tree: Tree, path: bytes, buffer: bytearray) -> bytes:
    digest = xxhash.xxh3_128()
    view = memoryview(buffer)
    fd = tree.open(path)
    try:
        while count := os.readv(fd, [buffer]):
            digest.update(view[:count])
    finally:
        os.close(fd)
    return digest.digest()


def check_tree(tree: str, store: Store, manifest: Manifest, crew: Crew) -> Iterator[BadEntry]:
    """Everything in `tree` that is not as the manifest in `store` says."""
    jobs = ((None, job) for job in _jobs(tree, read_checked(store, manifest)))
    for _, result in crew.in_order(jobs, ahead=16):
        yield from result.value


def _jobs(tree: str, entries: Iterable[Entry]) -> Iterator[Check]:
    rows: list[tuple[bytes, str, bool, int, bytes]] = []
    size = 0
    for entry in entries:
        rows.append((entry.path, entry.kind, entry.executable, entry.size, entry.content))
        size += entry.size
        if len(rows) >= JOB_FILES or size >= JOB_BYTES:
            yield Check(tree, tuple(rows))
            rows, size = [], 0
    if rows:
        yield Check(tree, tuple(rows))
