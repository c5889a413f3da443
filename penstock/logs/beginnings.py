"""Where a log that was there before its first reader is read from: its beginning, its end, or a time.

Receives what the user said; hands it in one form. Logs of servers use it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from penstock.errors import UserError

Beginning = Literal["earliest", "latest"] | datetime


def beginning(said: str | datetime) -> Beginning:
    """`earliest`, `latest`, or a time (UTC unless it says otherwise), also as ISO text."""
    if said == "earliest" or said == "latest":
        return "earliest" if said == "earliest" else "latest"
    try:
        time = datetime.fromisoformat(said) if isinstance(said, str) else said
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, AttributeError):
        raise UserError(
            "BAD_OPTION",
            f"{said!r} is no place to begin a log at",
            hint="'earliest', 'latest', or a time such as '2026-03-01T00:00:00Z'.",
        ) from None


def millis(time: datetime) -> int:
    """Milliseconds since 1970."""
    return int(time.timestamp() * 1000)
