"""Symlinks must not lead out of their tree, not even through one another."""


def target_leaves(path: bytes, target: bytes) -> bool:
    """Whether a symlink at `path` with `target` leads out of the tree, as far as these two tell."""
    if target.startswith(b"/"):
        return True
    depth = path.count(b"/")
    for part in target.split(b"/"):
        if part == b"..":
            depth -= 1
        elif part not in (b"", b"."):
            depth += 1
        if depth < 0:
            return True
    return False


class SymlinkCheck:
    """Finds symlinks that go up again from a name which is a symlink itself: `here -> .`, `out -> here/..`.

    Where such a `..` leads cannot be told from the target alone, so they count as leaving the tree.
    """

    def __init__(self) -> None:
        self._links: set[bytes] = set()
        self._passed: list[tuple[bytes, bytes]] = []

    def add(self, path: bytes, target: bytes) -> None:
        """Adds a symlink for which `target_leaves` is false."""
        self._links.add(path)
        at = path.split(b"/")[:-1]
        names: list[bytes] = []
        for part in target.split(b"/"):
            if part == b"..":
                self._passed += [(name, path) for name in names]
                names.clear()
                at.pop()
            elif part not in (b"", b"."):
                at.append(part)
                names.append(b"/".join(at))

    def leaving(self) -> list[bytes]:
        """The paths of those that may leave, once all are added."""
        return sorted({path for name, path in self._passed if name in self._links})
