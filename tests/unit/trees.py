"""Strategies for trees of entries."""

from hypothesis import strategies as st

from dsagent.core.entries import DIRECTORY, FILE, SYMLINK, Entry, Stamp, path_order

NAMES = st.binary(min_size=1, max_size=12).filter(lambda n: b"/" not in n and b"\0" not in n and n not in (b".", b".."))


@st.composite
def entries(draw: st.DrawFn, bundle_bytes: int = 0) -> list[Entry]:
    """A valid tree in path order; with `bundle_bytes`, its files lie in bundle 0 of that plain length."""
    directories = [b""]
    taken: dict[bytes, Entry] = {}
    for name in draw(st.lists(NAMES, max_size=25)):
        parent = draw(st.sampled_from(directories))
        path = parent + b"/" + name if parent else name
        if path in taken:
            continue
        kind = draw(st.sampled_from([FILE, FILE, FILE, DIRECTORY, SYMLINK]))
        if kind == DIRECTORY:
            directories.append(path)
            taken[path] = Entry(path, DIRECTORY, False, 0, 0, b"")
        elif kind == SYMLINK:
            taken[path] = Entry(path, SYMLINK, False, 0, 0, draw(NAMES))
        else:
            size = draw(st.integers(0, bundle_bytes or 1 << 40))
            offset = draw(st.integers(0, bundle_bytes - size)) if bundle_bytes else 0
            taken[path] = Entry(
                path,
                FILE,
                draw(st.booleans()),
                size,
                draw(st.integers(-(1 << 62), 1 << 62)),
                draw(st.binary(min_size=16, max_size=16)),
                0 if bundle_bytes else -1,
                offset,
            )
    return sorted(taken.values(), key=lambda entry: path_order(entry.path))


def stamp_of(path: bytes, size: int = 0, token: bytes = b"1") -> Stamp:
    """A file's stamp."""
    return Stamp(path, FILE, False, size, 0, token)
