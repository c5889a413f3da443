"""What an agent or a gateway says of itself: one JSON object a line on standard error."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime

_speaking = threading.Lock()


def tell(event: str, **facts: object) -> None:
    """Say that something happened."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"at": at, "event": event, **facts}, default=str) + "\n"
    with _speaking:  # a line of one thread never inside that of another
        sys.stderr.write(line)
        sys.stderr.flush()
