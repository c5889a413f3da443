"""What travels between tasks: a small JSON header and a payload, as one byte string.

Receives frames and reports from scan and slice tasks; returns them to the next stage or the driver. Spark moves
the bytes and never looks inside. Where all tasks of an engine share one host, large frames lie on a shelf in
its memory and the message carries their names.

    header   4 bytes of length, then JSON: [kind, body, file of the frame or null], padded to 64 bytes
    frame    an Arrow stream, where the message has one that is not in a file

Both ends run the same version: the encoding is not kept, and may change.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.query.edges import EdgeTarget
from penstock.state.collection import Changes
from penstock.state.ipc import as_table, from_file, from_stream, stream_bytes, write_file
from penstock.state.run import RunEntry

#: frames from this size on are worth a file of their own on a shared shelf
SHELVED_BYTES = 1 << 16

#: the changes of a collection of an operator: its id, the collection's name, and they
CollectionChanges = tuple[str, str, Changes]


@dataclass(frozen=True)
class Message(ABC):
    """A message. `to_bytes` encodes it, `open_message` is the way back."""

    kind: ClassVar[str]

    @abstractmethod
    def body(self) -> list[Any]:
        """What is in the header, as JSON takes it."""

    @property
    def payload(self) -> pl.DataFrame | None:
        """The frame it carries."""
        return None

    def to_bytes(self) -> bytes:
        header, frame = self._header(None), self.payload
        return header if frame is None else b"".join((header, stream_bytes(frame)))

    def left_at(self, shelf: str | None) -> bytes:
        """The message encoded; a large frame is left on the host's shelf and only its name travels."""
        frame = self.payload
        if shelf is None or frame is None or frame.estimated_size() < SHELVED_BYTES:
            return self.to_bytes()
        os.makedirs(shelf, mode=0o700, exist_ok=True)
        path = os.path.join(shelf, f"{uuid.uuid4().hex}.arrow")
        write_file(as_table(frame), path)
        return self._header(path)

    def _header(self, shelved: str | None) -> bytes:
        header = json.dumps([self.kind, self.body(), shelved], separators=(",", ":")).encode()
        header += b" " * (-(len(header) + 4) % 64)  # Arrow wants its buffers aligned
        return struct.pack(">I", len(header)) + header


# -- the kinds of messages -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows(Message):
    """Rows for a port of a stage, for an output, or for the outputs of jobs."""

    kind = "rows"
    target: EdgeTarget
    frame: pl.DataFrame
    port: int = 0

    def body(self) -> list[Any]:
        return [self.target.kind, self.target.name, self.port]

    @property
    def payload(self) -> pl.DataFrame:
        return self.frame


@dataclass(frozen=True)
class Times(Message):
    """The highest event time that scan tasks have seen, per stream and partition."""

    kind = "times"
    seen: Mapping[str, Mapping[str, int]]

    def body(self) -> list[Any]:
        return [self.seen]


@dataclass(frozen=True)
class Aside(Message):
    """Rows that were put aside, for the driver."""

    kind = "aside"
    frame: pl.DataFrame

    def body(self) -> list[Any]:
        return []

    @property
    def payload(self) -> pl.DataFrame:
        return self.frame


@dataclass(frozen=True)
class TaskReport(Message, ABC):
    """What a task did, for the driver: how long it took, how much of that it had a core, where it ran, and what the
    processes there hold in memory, each for itself and shared; and for how long jobs kept it with what is their own."""

    seconds: float
    cpu_seconds: float = 0.0
    executor: str = ""
    memory: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    job_seconds: Mapping[int, float] = field(default_factory=dict)

    @property
    @abstractmethod
    def stage(self) -> str:
        """The stage that it is a task of."""

    def _body(self) -> list[Any]:
        memory, jobs = list(self.memory.items()), list(self.job_seconds.items())
        return [self.seconds, self.cpu_seconds, self.executor, memory, jobs]


def _common(
    seconds: float, cpu: float, executor: str, memory: list[Any], jobs: list[Any]
) -> tuple[float, float, str, dict[int, tuple[int, int]], dict[int, float]]:
    return seconds, cpu, executor, {pid: (own, shared) for pid, (own, shared) in memory}, dict(jobs)


@dataclass(frozen=True)
class ScanReport(TaskReport):
    """What a scan task did, and the event times of the oldest and the newest event that is not late."""

    kind = "scanned"
    events: int = 0
    bytes: int = 0
    late: int = 0
    bad: int = 0
    oldest: int | None = None
    newest: int | None = None

    @property
    def stage(self) -> str:
        return "scan"

    def body(self) -> list[Any]:
        counts = [self.events, self.bytes, self.late, self.bad, self.oldest, self.newest]
        return [self._body(), counts]


@dataclass(frozen=True)
class StageWork:
    """What one stateful operator did in a slice: seconds, rows that came and the bytes that they travelled in; the
    buckets that some came for, and how many for each of these."""

    seconds: float
    rows: int = 0
    bytes: int = 0
    buckets: Sequence[int] = ()
    counts: Sequence[int] = ()


@dataclass(frozen=True)
class Awaited:
    """How many rows of a group of jobs wait for each instant to come, by the time of a stream; in these batches it has
    jobs, if it can emit them in batches."""

    stream: str
    batches: tuple[int, ...]
    rows: Mapping[int, int]


@dataclass(frozen=True)
class SliceReport(TaskReport):
    """What a slice's task did at one level, and what it changed in the state."""

    kind = "sliced"
    level: int = 1
    slice: int = 0
    rows: int = 0
    changes: tuple[CollectionChanges, ...] = ()
    work: Mapping[str, StageWork] = field(default_factory=dict)
    awaited: tuple[Awaited, ...] = ()

    @property
    def stage(self) -> str:
        return f"slice {self.level}"

    def body(self) -> list[Any]:
        return [
            self._body(),
            [self.level, self.slice, self.rows],
            [[owner, name, _changes_to_json(change)] for owner, name, change in self.changes],
            {name: [w.seconds, w.rows, w.bytes, w.buckets, w.counts] for name, w in self.work.items()},
            [[one.stream, one.batches, list(one.rows.items())] for one in self.awaited],
        ]


@dataclass(frozen=True)
class EpochError(Message):
    """An error on its way to the driver: it ends the epoch without Spark trying the task again."""

    kind = "error"
    error: PenstockError

    def body(self) -> list[Any]:
        return [error_to_json(self.error)]


@dataclass(frozen=True)
class JobError(Message):
    """A job that comes and goes has failed alone; by its number."""

    kind = "failed"
    job: int
    error: PenstockError

    def body(self) -> list[Any]:
        return [self.job, error_to_json(self.error)]


# -- decoding --------------------------------------------------------------------------------------------


class Envelope:
    """An encoded message whose header has been read, and nothing of its frame."""

    def __init__(self, data: bytes) -> None:
        (length,) = struct.unpack_from(">I", data)
        self.data = data
        self.kind: str
        self._body: list[Any]
        self._shelved: str | None
        self.kind, self._body, self._shelved = json.loads(data[4 : 4 + length])
        self._at = 4 + length

    @property
    def target(self) -> EdgeTarget | None:
        """Where rows go; None for any other message."""
        return EdgeTarget(self._body[0], self._body[1]) if self.kind == Rows.kind else None

    def open(self) -> Message:
        """The message."""
        body = self._body
        match self.kind:
            case Rows.kind:
                return Rows(EdgeTarget(body[0], body[1]), self._frame(), body[2])
            case Times.kind:
                return Times(body[0])
            case Aside.kind:
                return Aside(self._frame())
            case ScanReport.kind:
                return ScanReport(*_common(*body[0]), *body[1])
            case SliceReport.kind:
                common, (level, slice_, rows), changes, work, awaited = body
                return SliceReport(
                    *_common(*common),
                    level,
                    slice_,
                    rows,
                    tuple((owner, name, _changes_from_json(change)) for owner, name, change in changes),
                    {name: StageWork(*one) for name, one in work.items()},
                    tuple(Awaited(stream, tuple(in_), dict(rows)) for stream, in_, rows in awaited),
                )
            case EpochError.kind:
                return EpochError(error_from_json(body[0]))
            case JobError.kind:
                return JobError(body[0], error_from_json(body[1]))
        raise AssertionError(f"there is no message {self.kind}")

    def _frame(self) -> pl.DataFrame:
        if self._shelved is not None:
            with pa.memory_map(self._shelved) as mapped:
                return from_file(mapped)
        return from_stream(memoryview(self.data)[self._at :])


def open_message(data: bytes) -> Message:
    """The message that was encoded."""
    return Envelope(data).open()


def _changes_to_json(change: Changes) -> list[object]:
    return [
        [entry.to_json() for entry in change.added],
        [[name, sorted(buckets)] for name, buckets in change.dropped],
    ]


def _changes_from_json(body: list[Any]) -> Changes:
    added, dropped = body
    return Changes(
        tuple(RunEntry.from_json(entry) for entry in added),
        tuple((name, frozenset(buckets)) for name, buckets in dropped),
    )


def error_to_json(error: PenstockError) -> dict[str, Any]:
    """An error on its way to another process."""
    return {
        "class": type(error).__name__,
        "condition": error.condition,
        "primary": error.primary,
        "detail": error.detail,
        "hint": error.hint,
        "where": error.where,
    }


def error_from_json(body: Mapping[str, Any]) -> PenstockError:
    """An error as it was before it travelled."""
    kinds = {kind.__name__: kind for kind in (UserError, ExternalError, InternalError)}
    return kinds.get(body["class"], InternalError)(
        body["condition"], body["primary"], detail=body["detail"], hint=body["hint"], where=body["where"]
    )
