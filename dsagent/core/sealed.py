"""JSON documents that carry their own checksum.

A sealed document is one JSON object whose last field, `"xxh3"`, is the xxh3-128 (32 hex digits) of all bytes that
come before that field. Any JSON reader reads it; a flipped bit anywhere is noticed.
"""

from typing import Any

import xxhash

from dsagent.core.errors import BadStore

_MARK = b',"xxh3":"'
_TAIL = len(_MARK) + 32 + len(b'"}\n')


def seal(document: dict[str, Any]) -> bytes:
    """The document, which must have a field, as sealed bytes."""
    import orjson  # noqa: PLC0415 - workers start without, and it loads much

    body = orjson.dumps(document)[:-1]
    return body + _MARK + xxhash.xxh3_128_hexdigest(body).encode() + b'"}\n'


def unseal(data: bytes, subject: str, magic: str, fields: frozenset[str]) -> dict[str, Any]:
    """The object in `data`.

    Raises BadStore, naming `subject`, unless the checksum holds, the first field is `magic` with format 1, and the
    other fields are exactly `fields`.
    """
    import orjson  # noqa: PLC0415 - see above

    if data[-_TAIL:-_TAIL + len(_MARK)] != _MARK or data[-3:] != b'"}\n':  # fmt: skip
        raise _bad(subject, f"it is not a {magic} document, or is cut short")
    body = data[:-_TAIL]
    if xxhash.xxh3_128_hexdigest(body).encode() != data[-35:-3]:
        raise _bad(subject, "its checksum does not hold")
    try:
        document = orjson.loads(body + b"}")
    except orjson.JSONDecodeError as error:
        raise _bad(subject, "it is not JSON") from error
    if not isinstance(document, dict) or next(iter(document), None) != magic:
        raise _bad(subject, f"its first field is not {magic}")
    if document.pop(magic) != 1:
        raise _bad(subject, f"its {magic} format is unknown to this release", "use a newer dsagent")
    if document.keys() != fields:
        raise _bad(subject, f"unknown or missing fields: {', '.join(sorted(document.keys() ^ fields))}")
    return document


def _bad(
    subject: str, cause: str, hint: str = "restore it from a copy, or pack the source into a new store"
) -> BadStore:
    return BadStore("read", subject, cause, hint)
