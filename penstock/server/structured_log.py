"""Structured logs: one JSON object a line on standard error.

Receives log records; hands lines. What is put into `extra={"facts": {...}}` stands beside the message.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO

LOG = logging.getLogger("penstock.server")


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
        }
        told |= {name: value for name, value in getattr(record, "facts", {}).items() if name not in told}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


class Latest(logging.Handler):
    """Keeps the latest lines, for those who look."""

    def __init__(self, most: int = 500) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[dict[str, Any]] = deque(maxlen=most)

    def emit(self, record: logging.LogRecord) -> None:
        facts = json.loads(json.dumps(getattr(record, "facts", {}), default=str))
        if record.exc_info:
            facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event, level = record.getMessage(), record.levelname.lower()
        self._lines.append({"at": at, "level": level, "source": record.name, "event": event, "facts": facts})

    def lines(self, most: int) -> list[dict[str, Any]]:
        """The latest lines, the latest first."""
        return list(self._lines)[: -most - 1 : -1]

    def listen(self) -> None:
        """Begin to keep what Penstock logs, errors and what is said in passing."""
        logger = logging.getLogger("penstock")
        if logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def rest(self) -> None:
        """Keep nothing any more."""
        logging.getLogger("penstock").removeHandler(self)


def log(event: str, level: int = logging.INFO, **facts: object) -> None:
    """Say that something happened."""
    LOG.log(level, event, extra={"facts": facts})


def to_lines(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Have all logs of the service and its server written as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("penstock", "uvicorn", "nicegui"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler, *(kept for kept in logger.handlers if isinstance(kept, Latest))]
        logger.setLevel(level if name == "penstock" else logging.WARNING)
        logger.propagate = False
    return handler
