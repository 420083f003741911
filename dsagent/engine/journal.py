"""Which jobs of a flight are done already, for the next attempt after this one was killed.

Workers append a line as they finish a job: one write each, so lines never mix and at most the last one is torn.
The lines can be trusted only as long as the mount that they were written through lives; see engine/staging.py.
"""

import os
from collections.abc import Iterable, Sequence

import xxhash


def job_key(*parts: bytes | str | int) -> str:
    """A job's name in the journal: the same for the same work."""
    text = b"\0".join(part if isinstance(part, bytes) else str(part).encode() for part in parts)
    return xxhash.xxh3_128_hexdigest(text)


def append(path: str, key: str, contents: Sequence[bytes] = ()) -> None:
    """Records a job as done, with the digests it found. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, f"{key} {b''.join(contents).hex()}\n".encode())
    finally:
        os.close(fd)


def read(path: str) -> dict[str, bytes]:
    """The digests of each job done, one after the other, by the job's key; empty if there is no journal."""
    try:
        with open(path, "rb") as file:
            return dict(_rows(file))
    except FileNotFoundError:
        return {}


def _rows(lines: Iterable[bytes]) -> Iterable[tuple[str, bytes]]:
    for line in lines:
        key, space, digests = line.partition(b" ")
        if space and digests.endswith(b"\n"):
            yield key.decode(), bytes.fromhex(digests.decode())
