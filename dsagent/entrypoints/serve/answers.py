"""Answers as JSON."""

from typing import Any

import orjson
from fastapi import Response

from dsagent.entrypoints.documents import as_document

EVENTS: dict[str, Any] = {
    "description": "Server-sent events",
    "content": {
        "text/event-stream": {
            "schema": {
                "description": "One event; data is JSON.",
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("event", "data", "id")},
            }
        }
    },
}


def as_json(value: object) -> Response:
    """An answer with a result."""
    return Response(_dumped(value), media_type="application/json")


def as_event(kind: str, value: object, event_id: int | None = None) -> bytes:
    """One event of a stream."""
    head = b"" if event_id is None else b"id: %d\n" % event_id
    return head + b"event: %s\ndata: %s\n\n" % (kind.encode(), _dumped(value))


def _dumped(value: object) -> bytes:
    """As as_document has it, and without its steps in Python where nothing needs them."""
    try:
        return orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:  # there are times, bytes, or names that are not UTF-8
        return orjson.dumps(as_document(value))
