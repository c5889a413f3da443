"""Structured logs: one JSON object a line on standard error.

Receives log records; hands lines. What is put into `extra={"facts": {...}}` stands beside the message.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

LOG = logging.getLogger("penstock.http")


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
        }
        told |= getattr(record, "facts", {})
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def log(event: str, level: int = logging.INFO, **facts: object) -> None:
    """Say that something happened."""
    LOG.log(level, event, extra={"facts": facts})


def to_lines(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Have all logs of the service and its server written as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("penstock", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level if name == "penstock" else logging.WARNING)
        logger.propagate = False
    return handler
