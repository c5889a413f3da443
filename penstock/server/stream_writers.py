"""Appends events that arrive over HTTP to the log of a stream: a segment log, or one that implements `AppendableLog`.

A producer's sequences are its numbers in a segment log: events under sequence n are numbered from n * 2**32 on, so the
log itself remembers which sequence was the last, also after kill -9. A sequence that is not above the last is a
repetition and is left out. Requests that arrive while a group is forced to disk form the next group.

Guarantees: a log has one writer, by the log's own lock, from the first event to the end of the service. All lines of a
request are in the log, or none.
On failure: `UserError` STREAM_TAKES_NO_EVENTS where a gateway writes the log; `ExternalError` LOG_UNWRITABLE.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ingest.frames import JUMP, Frame
from penstock.ingest.intake import check_producer
from penstock.ingest.segment_log import SegmentLog
from penstock.ingest.store import Retention, Store
from penstock.logs.contract import Log

#: the producer of requests that name none
ANONYMOUS = "service"
#: a log created here has one partition: lateness goes by the order of arrival, no silent client holds others back
PARTITIONS = 1
_SHIFT = 32
#: no sequence is higher: numbers in a log have an end
MAX_SEQUENCE = (1 << 29) - 1
_PRUNE_SECONDS = 30.0


@dataclass(eq=False)
class _PendingRequest:
    """A request on its way to disk."""

    frame: Frame
    sequence: int | None
    appended: int = 0
    error: PenstockError | None = None
    done: bool = False


class _Writer:
    """Writes one log."""

    def __init__(self, directory: Path) -> None:
        self._store = Store(directory, partitions=PARTITIONS)
        self._queue: list[_PendingRequest] = []
        self._queue_lock, self._commit_lock = threading.Lock(), threading.Lock()
        self._pruned_at = 0.0

    def append(self, request: _PendingRequest) -> int:
        """Write a request together with those that wait beside it; return once it is on disk."""
        with self._queue_lock:
            self._queue.append(request)
        with self._commit_lock:
            if not request.done:
                with self._queue_lock:
                    group, self._queue = self._queue, []
                self._commit(group)
        if request.error is not None:
            raise request.error
        return request.appended

    def close(self) -> None:
        with self._commit_lock:
            self._store.close()

    def _commit(self, group: Sequence[_PendingRequest]) -> None:
        now = time.time_ns() // 1000
        try:
            for one in group:
                first = self._store.expected(one.frame.producer)
                if one.sequence is not None:
                    if first > one.sequence << _SHIFT:
                        continue
                    first = one.sequence << _SHIFT
                self._store.take(replace(one.frame, first=first), now)
                one.appended = one.frame.count
            self._store.commit()
        except PenstockError as error:
            for one in group:
                one.appended, one.error = 0, error
        finally:
            for one in group:
                one.done = True
        if time.monotonic() - self._pruned_at > _PRUNE_SECONDS:
            self._pruned_at = time.monotonic()
            self._store.prune(Retention(), time.time())


class SegmentWriters:
    """The segment logs this process writes to, each opened by its first event."""

    def __init__(self) -> None:
        self._writers: dict[Path, _Writer] = {}
        self._lock = threading.Lock()

    def append(
        self, directory: Path, records: Sequence[bytes], producer: str | None, sequence: int | None
    ) -> int:
        """Append records; return how many were new."""
        named = producer is not None and sequence is not None
        name = check_producer(str(producer)) if named else ANONYMOUS
        if named and (name == ANONYMOUS or not 0 <= int(sequence or 0) <= MAX_SEQUENCE):
            raise UserError(
                "BAD_PRODUCER",
                f"{name!r} is the service's own"
                if name == ANONYMOUS
                else f"a sequence is at most {MAX_SEQUENCE:,}",
            )
        lines = b"".join(record + b"\n" for record in records)
        # JUMP: sequences leave gaps in the log's own numbers
        frame = Frame.of(name, 0, lines, made_at=time.time_ns() // 1000, flags=JUMP if named else 0)
        return self._writer(directory).append(_PendingRequest(frame, sequence if named else None))

    def close(self) -> None:
        """Close all logs."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()

    def _writer(self, directory: Path) -> _Writer:
        with self._lock:
            if directory not in self._writers:
                try:
                    self._writers[directory] = _Writer(directory)
                except OSError as error:
                    raise ExternalError(
                        "LOG_UNWRITABLE", "the log cannot be written to", detail=str(error)
                    ) from error
                except ExternalError as error:
                    if error.condition != "LOG_TAKEN":
                        raise
                    raise UserError(
                        "STREAM_TAKES_NO_EVENTS",
                        "a gateway, or another service, writes this stream's log",
                        hint="Send the events to the gateway, by an agent or by HTTP.",
                    ) from None
            return self._writers[directory]


# -- streams -------------------------------------------------------------------------------------


@runtime_checkable
class AppendableLog(Protocol):
    """A log that the service can append records to."""

    def take(self, records: Sequence[bytes], producer: str | None, sequence: int | None) -> int:
        """Append records, all or none; return how many were new, once they are durable.

        What a producer sends again under the same sequence is appended once."""


def takes_events(log: Log) -> bool:
    """Whether events can be appended to a log through the service."""
    return isinstance(log, AppendableLog) or (isinstance(log, SegmentLog) and not log.closed())


def append_lines(
    name: str,
    log: Log,
    body: bytes,
    writers: SegmentWriters,
    producer: str | None = None,
    sequence: int | None = None,
) -> tuple[int, int]:
    """Append the lines of a body to the log of a stream; return how many there are and how many of them are new."""
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
        return len(records), writers.append(log.directory, records, producer, sequence)
    assert isinstance(log, AppendableLog)
    return len(records), log.take(records, producer, sequence)
