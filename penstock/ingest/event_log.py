"""Logs the events of an agent or a gateway: one JSON object a line on standard error."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime

_lock = threading.Lock()


def log_event(event: str, **facts: object) -> None:
    """Write an event and its facts."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"at": at, "event": event, **facts}, default=str) + "\n"
    with _lock:  # lines of different threads must not mix
        sys.stderr.write(line)
        sys.stderr.flush()
