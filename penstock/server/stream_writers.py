"""The segment logs that the service writes to: for streams whose events come over HTTP instead of from agents.

Receives lines of requests; hands how many were new, once they are on disk.

A producer's sequences are its numbers in the log: what it sends under sequence n is numbered from n * 2**32 on, so the
log itself remembers, also after kill -9, which was the last. A sequence that is not above the last was taken before.
Requests that come while a group is forced to disk are the next group.

Invariants: one writer a log, by the log's own lock, from the first event to the end of the service. Lines of a request
are in the log together, or not at all.
On failure: `UserError` STREAM_TAKES_NO_EVENTS where a gateway writes the log; `ExternalError` LOG_UNWRITABLE.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import ExternalError, PenstockError, UserError
from penstock.ingest.frames import JUMP, Frame
from penstock.ingest.intake import check_producer
from penstock.ingest.store import Retention, Store

#: the producer of requests that name none
ANYBODY = "service"
#: a log that begins here has one partition: lateness goes by the order of arrival, no silent client holds others back
PARTITIONS = 1
_SHIFT = 32
#: no sequence is higher: numbers in a log have an end
MOST_SEQUENCE = (1 << 29) - 1
_PRUNE_SECONDS = 30.0


@dataclass(eq=False)
class _Waiting:
    """A request on its way to disk."""

    frame: Frame
    sequence: int | None
    taken: int = 0
    error: PenstockError | None = None
    done: bool = False


class _Writer:
    """Writes one log."""

    def __init__(self, directory: Path) -> None:
        self._store = Store(directory, partitions=PARTITIONS)
        self._queue: list[_Waiting] = []
        self._queueing, self._turn = threading.Lock(), threading.Lock()
        self._pruned_at = 0.0

    def take(self, waiting: _Waiting) -> int:
        """Have a request written, with those that wait beside it; returns once it is on disk."""
        with self._queueing:
            self._queue.append(waiting)
        with self._turn:
            if not waiting.done:
                with self._queueing:
                    group, self._queue = self._queue, []
                self._commit(group)
        if waiting.error is not None:
            raise waiting.error
        return waiting.taken

    def close(self) -> None:
        with self._turn:
            self._store.close()

    def _commit(self, group: Sequence[_Waiting]) -> None:
        now = time.time_ns() // 1000
        try:
            for one in group:
                first = self._store.expected(one.frame.producer)
                if one.sequence is not None:
                    if first > one.sequence << _SHIFT:
                        continue
                    first = one.sequence << _SHIFT
                self._store.take(replace(one.frame, first=first), now)
                one.taken = one.frame.count
            self._store.commit()
        except PenstockError as error:
            for one in group:
                one.taken, one.error = 0, error
        finally:
            for one in group:
                one.done = True
        if time.monotonic() - self._pruned_at > _PRUNE_SECONDS:
            self._pruned_at = time.monotonic()
            self._store.prune(Retention(), time.time())


class SegmentWriters:
    """The logs this process writes to, each opened by its first event."""

    def __init__(self) -> None:
        self._writers: dict[Path, _Writer] = {}
        self._lock = threading.Lock()

    def take(
        self, directory: Path, records: Sequence[bytes], producer: str | None, sequence: int | None
    ) -> int:
        """Append records; hands how many were new."""
        named = producer is not None and sequence is not None
        who = check_producer(str(producer)) if named else ANYBODY
        if named and (who == ANYBODY or not 0 <= int(sequence or 0) <= MOST_SEQUENCE):
            raise UserError(
                "BAD_PRODUCER",
                f"{who!r} is the service's own"
                if who == ANYBODY
                else f"a sequence is at most {MOST_SEQUENCE:,}",
            )
        lines = b"".join(record + b"\n" for record in records)
        # JUMP: sequences are not one after the other in the log's own numbers
        frame = Frame.of(who, 0, lines, made_at=time.time_ns() // 1000, flags=JUMP if named else 0)
        return self._writer(directory).take(_Waiting(frame, sequence if named else None))

    def close(self) -> None:
        """Let go of all logs."""
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
