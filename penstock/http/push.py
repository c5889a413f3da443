"""Events from the network into a stream's log, where that log takes any.

Receives the body of a request; hands its records to the log. A log that can be written through the service is one that
`Takes`: today lists in tests; a segment log is written by its gateway alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from penstock.logs.contract import Log
from penstock.words.errors import UserError


@runtime_checkable
class Takes(Protocol):
    """A log that records can be appended to."""

    def take(self, records: Sequence[bytes], producer: str | None, sequence: int | None) -> int:
        """Append records, all or none, and return once they are safe; hands how many were new.

        What a producer sends again under the same sequence is taken once."""


def pushed(
    name: str, log: Log, body: bytes, producer: str | None = None, sequence: int | None = None
) -> tuple[int, int]:
    """Append the lines of a body to a stream's log; hands how many there were and how many were new."""
    if not isinstance(log, Takes):
        raise UserError(
            "STREAM_TAKES_NO_EVENTS",
            f"the log of {name} cannot be written through the service",
            detail=log.describe(),
            hint="Write to it where it lies; events of a segment log come through its gateway.",
        )
    records = [line for line in body.split(b"\n") if line.strip()]
    return len(records), (log.take(records, producer, sequence) if records else 0)
