"""The agent's log: one line an event, JSON or text, with the task, dataset and pod it is about."""

import logging
import sys
import threading
from datetime import UTC, datetime

import orjson

from dsagent.agent.subject import current
from dsagent.entrypoints.documents import rfc3339

log = logging.getLogger("dsagent")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and what the line is about."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        document: dict[str, str] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **current(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(document).decode()


class TextLines(logging.Formatter):
    """Time, level, message and what the line is about, for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        about = " ".join(f"{name}={value}" for name, value in current().items())
        line = super().format(record)
        return f"{line} [{about}]" if about else line


def log_to_stderr(form: str) -> None:
    """Sends the log of dsagent to standard error, and what libraries and threads complain of, in the same form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.getLogger().addHandler(handler)
    log.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    threading.excepthook = _ended


def _ended(raised: threading.ExceptHookArgs) -> None:
    """A thread of its own would say so on standard error, in a form of its own."""
    error = raised.exc_value
    log.error("a thread ended: %s", raised.thread and raised.thread.name, exc_info=error)
