"""Writes logs as one JSON object a line on standard error, and keeps the latest lines.

The fields of `extra={"facts": {...}}` stand beside the message.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO

from penstock.formatting import printable

LOG = logging.getLogger("penstock.server")


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in getattr(record, "facts", {}).items() if name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return printable(json.dumps(line, ensure_ascii=False, default=str))


class RecentLines(logging.Handler):
    """Keeps the latest lines in memory."""

    def __init__(self, limit: int = 500) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[dict[str, Any]] = deque(maxlen=limit)

    def emit(self, record: logging.LogRecord) -> None:
        facts = json.loads(json.dumps(getattr(record, "facts", {}), default=str))
        if record.exc_info:
            facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event, level = record.getMessage(), record.levelname.lower()
        self._lines.append({"at": at, "level": level, "source": record.name, "event": event, "facts": facts})

    def lines(self, limit: int) -> list[dict[str, Any]]:
        """The latest lines, the latest first."""
        return list(self._lines)[: -limit - 1 : -1]

    def start(self) -> None:
        """Start to keep what Penstock logs, from level INFO on."""
        logger = logging.getLogger("penstock")
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def stop(self) -> None:
        """Stop to keep lines."""
        logging.getLogger("penstock").removeHandler(self)


def log(event: str, level: int = logging.INFO, **facts: object) -> None:
    """Log an event with its facts."""
    LOG.log(level, event, extra={"facts": facts})


def log_as_json(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Write all logs of the service and its HTTP server as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("penstock", "uvicorn", "nicegui"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [
            handler,
            *(other for other in logger.handlers if isinstance(other, RecentLines)),
        ]
        logger.setLevel(level if name == "penstock" else logging.WARNING)
        logger.propagate = False
    return handler
