"""Events from the network into a stream's log, where that log takes any.

Receives the body of a request; hands its records to the log: one that `Takes` them itself, or a segment log, through
this process's `SegmentWriters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from penstock.errors import UserError
from penstock.ingest.segment_log import SegmentLog
from penstock.logs.contract import Log
from penstock.server.stream_writers import SegmentWriters


@runtime_checkable
class Takes(Protocol):
    """A log that records can be appended to."""

    def take(self, records: Sequence[bytes], producer: str | None, sequence: int | None) -> int:
        """Append records, all or none, and return once they are safe; hands how many were new.

        What a producer sends again under the same sequence is taken once."""


def takes_events(log: Log) -> bool:
    """Whether events can be appended to a log through the service, unless a gateway writes it."""
    return isinstance(log, Takes) or (isinstance(log, SegmentLog) and not log.closed())


def pushed(
    name: str,
    log: Log,
    body: bytes,
    writers: SegmentWriters,
    producer: str | None = None,
    sequence: int | None = None,
) -> tuple[int, int]:
    """Append the lines of a body to a stream's log; hands how many there were and how many were new."""
    if not takes_events(log):
        raise UserError(
            "STREAM_TAKES_NO_EVENTS",
            f"the log of {name} cannot be written through the service",
            detail=log.describe(),
            hint="Write to it where it lies, or let the stream read segments('DIR/NAME').",
        )
    records = [line for line in body.split(b"\n") if line.strip()]
    if not records:
        return 0, 0
    if isinstance(log, SegmentLog):
        return len(records), writers.take(log.directory, records, producer, sequence)
    assert isinstance(log, Takes)
    return len(records), log.take(records, producer, sequence)
