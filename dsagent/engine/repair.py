"""Putting new files, symlinks and directories in place of bad ones in a published tree."""

import os
import stat
from collections.abc import Iterable

from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry, path_order
from dsagent.engine.tree import Tree, open_below, remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN, _SEALED = 0o755, 0o555


def put_in_place(data: str, staged: str, entries: Iterable[Entry]) -> None:
    """Moves each of `entries`, in path order, from the tree `staged` to its place in the published tree `data`.

    A published inode is never written: what is bad is replaced, in one rename. Raises OSError.
    """
    root = os.open(data, _DIRECTORY)
    try:
        with Tree(staged) as tree:
            for entry in entries:
                directory, _, name = entry.path.rpartition(b"/")
                parent = open_below(root, directory, _DIRECTORY) if directory else os.dup(root)
                try:
                    os.fchmod(parent, _OPEN)
                    _replace(tree, entry, parent, name)
                    os.fchmod(parent, _SEALED)
                finally:
                    os.close(parent)
    finally:
        os.close(root)


def make_parents(staged: str, entries: Iterable[Entry]) -> None:
    """Makes the directories below `staged` in which `entries` are to lie; raises OSError."""
    parents: set[bytes] = set()
    for entry in entries:
        parent = entry.path.rpartition(b"/")[0]
        while parent and parent not in parents:
            parents.add(parent)
            parent = parent.rpartition(b"/")[0]
    with Tree(staged) as tree:
        for parent in sorted(parents, key=path_order):
            tree.make_directory(parent)


def _replace(tree: Tree, entry: Entry, parent: int, name: bytes) -> None:
    _clear(tree, entry, parent, name)
    if entry.kind == DIRECTORY:
        os.mkdir(name, _SEALED, dir_fd=parent)
        return
    if entry.kind == SYMLINK:
        tree.make_symlink(entry.path, entry.content)
    source, _ = tree.parent(entry.path)
    if entry.kind == FILE:
        os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=source)
    os.rename(name, name, src_dir_fd=source, dst_dir_fd=parent)


def _clear(tree: Tree, entry: Entry, parent: int, name: bytes) -> None:
    """Takes away what a rename cannot replace: a directory, and anything else where a directory belongs."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        os.chmod(name, _OPEN, dir_fd=parent)  # moving a directory changes its '..'
        os.rename(name, b".removed", src_dir_fd=parent, dst_dir_fd=tree.parent(b".removed")[0])
        remove_tree(f"{tree.root}/.removed")
    elif entry.kind == DIRECTORY:
        os.unlink(name, dir_fd=parent)
