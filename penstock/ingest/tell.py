"""What an agent or a gateway says of itself: one JSON object a line on standard error."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime


def tell(event: str, **facts: object) -> None:
    """Say that something happened."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    print(json.dumps({"at": at, "event": event, **facts}, default=str), file=sys.stderr, flush=True)
