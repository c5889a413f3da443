"""Parses the position at which the first reader of a log starts: its first record, its end, or a time.

Receives the user's option; returns it in one form. Logs of servers use it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from penstock.errors import UserError

StartPosition = Literal["earliest", "latest"] | datetime


def parse_start(value: str | datetime) -> StartPosition:
    """Parse `earliest`, `latest`, or a time (UTC unless it has a zone), also as ISO text."""
    if value == "earliest" or value == "latest":
        return "earliest" if value == "earliest" else "latest"
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, AttributeError):
        raise UserError(
            "BAD_OPTION",
            f"{value!r} is no position at which to start reading a log",
            hint="'earliest', 'latest', or a time such as '2026-03-01T00:00:00Z'.",
        ) from None


def to_millis(time: datetime) -> int:
    """Convert a time to milliseconds since 1970."""
    return int(time.timestamp() * 1000)
