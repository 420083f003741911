"""Headers of the tar stream in a bundle: GNU format, because it keeps any bytes of any length as a name."""

import zlib

from dsagent.core.entries import DIRECTORY, FILE, Entry

RECORD = 512
END = bytes(2 * RECORD)

_LONG_NAME = b"L"
_LONG_LINK = b"K"
_TYPES = {FILE: b"0", DIRECTORY: b"5", "l": b"2"}
_OCTAL_SIZE_LIMIT = 8**11
# What does not change with an entry: mode, owner and group; what follows the link; the checksum's field while it is
# computed.
_OWNED = {mode: b"%07o\0" % mode + b"0000000\0" * 2 for mode in (0o644, 0o755)}
_MAGIC = b"ustar  ".ljust(255, b"\0")
_SPACES = 8 * ord(" ")


def padding(size: int) -> int:
    """Bytes of zero that follow `size` bytes of data."""
    return -size % RECORD


def header(entry: Entry) -> bytes:
    """The records that come before an entry's data; an integer number of 512 bytes."""
    name = entry.path + b"/" if entry.kind == DIRECTORY else entry.path
    link = b"" if entry.kind in (FILE, DIRECTORY) else entry.content
    mode = 0o755 if entry.executable or entry.kind != FILE else 0o644
    prefix = b""
    if len(link) > 100:
        prefix += _long(_LONG_LINK, link)
    if len(name) > 100:
        prefix += _long(_LONG_NAME, name)
    return prefix + _record(name[:100], mode, entry.size, entry.mtime_ns // 10**9, _TYPES[entry.kind], link[:100])


def header_length(path: bytes) -> int:
    """Bytes that `header` takes for a file at `path`."""
    return RECORD if len(path) <= 100 else 2 * RECORD + len(path) + 1 + padding(len(path) + 1)


def _long(kind: bytes, text: bytes) -> bytes:
    data = text + b"\0"
    return _record(b"././@LongLink", 0o644, len(data), 0, kind, b"") + data + bytes(padding(len(data)))


def _record(name: bytes, mode: int, size: int, mtime: int, kind: bytes, link: bytes) -> bytes:
    length = b"%011o\0" % size if size < _OCTAL_SIZE_LIMIT else b"\x80" + size.to_bytes(11, "big")
    when = b"%011o\0" % mtime if 0 <= mtime < _OCTAL_SIZE_LIMIT else mtime.to_bytes(12, "big", signed=True)
    if mtime >= _OCTAL_SIZE_LIMIT:
        when = b"\x80" + when[1:]
    head = name.ljust(100, b"\0") + _OWNED[mode] + length + when
    tail = kind + link.ljust(100, b"\0") + _MAGIC
    return b"%b%06o\0 %b" % (head, _sum(head) + _sum(tail) + _SPACES, tail)


def _sum(part: bytes) -> int:
    # Adler-32 has the sum of all bytes, plus 1 and modulo 65,521, in its lower half: much faster than sum(), and
    # exact here, where no part has 257 bytes that are not NUL.
    return (zlib.adler32(part) & 0xFFFF) - 1
