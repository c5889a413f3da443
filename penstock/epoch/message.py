"""Encodes what travels between the tasks of an epoch and to the driver: a small JSON header and a frame.

Spark moves the bytes and never looks inside. Where all tasks of an engine share one host, large frames are files in a
spill directory and the messages have their names.

    header   4 bytes of length, then JSON: [kind, body, file of the frame or null], padded to 64 bytes
    frame    an Arrow stream, where the message has one that is not in a file

Both ends run the same version, so the encoding may change.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.query.steps import EdgeTarget
from penstock.state.collection import Changes
from penstock.state.durable import make_private
from penstock.state.ipc import as_table, from_file, from_stream, stream_bytes, write_file
from penstock.state.run import RunEntry

#: frames from this size on are spilled to files
SPILL_BYTES = 1 << 16
#: about how large the frame of a message is at most: Spark frames a record with a 31-bit length
FRAME_BYTES = 256 << 20

#: the id of an operator, the name of a collection of it, and the collection's changes
CollectionChanges = tuple[str, str, Changes]


@dataclass(frozen=True)
class Message(ABC):
    """A message. `to_bytes` encodes it, `open_message` decodes it."""

    kind: ClassVar[str]

    @abstractmethod
    def body(self) -> list[Any]:
        """The body of the header, as JSON takes it."""

    @property
    def payload(self) -> pl.DataFrame | None:
        """The frame of the message."""
        return None

    def to_bytes(self, spill_directory: str | None = None) -> bytes:
        """The message encoded. With a spill directory, a large frame becomes a file there and only its name travels."""
        frame = self.payload
        if frame is None:
            return self._header(None)
        if spill_directory is None or frame.estimated_size() < SPILL_BYTES:
            return b"".join((self._header(None), stream_bytes(frame)))
        make_private(Path(spill_directory), durable=False)
        path = os.path.join(spill_directory, f"{uuid.uuid4().hex}.arrow")
        write_file(as_table(frame), path)
        return self._header(path)

    def _header(self, spilled: str | None) -> bytes:
        header = json.dumps([self.kind, self.body(), spilled], separators=(",", ":")).encode()
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


def encode_rows(
    target: EdgeTarget, rows: pl.DataFrame, port: int = 0, spill_directory: str | None = None
) -> Iterator[bytes]:
    """Messages with the rows, as many as keep each small enough to travel."""
    parts = max(1, -(-rows.estimated_size() // FRAME_BYTES))
    for part in rows.iter_slices(max(1, -(-rows.height // int(parts)))):
        yield Rows(target, part, port).to_bytes(spill_directory)


@dataclass(frozen=True)
class Times(Message):
    """The highest event time that scan tasks have seen, per stream and partition."""

    kind = "times"
    seen: Mapping[str, Mapping[str, int]]

    def body(self) -> list[Any]:
        return [self.seen]


@dataclass(frozen=True)
class SideOutput(Message):
    """Dead letters and late events, for the driver."""

    kind = "side output"
    frame: pl.DataFrame

    def body(self) -> list[Any]:
        return []

    @property
    def payload(self) -> pl.DataFrame:
        return self.frame


@dataclass(frozen=True)
class TaskReport(Message, ABC):
    """What a task did: how long it took, its CPU time, where it ran, the memory of the processes there (their own and
    shared), how long the own code of each job took, and by how many bytes it made the process grow."""

    seconds: float
    cpu_seconds: float = 0.0
    executor: str = ""
    memory: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    job_seconds: Mapping[int, float] = field(default_factory=dict)
    job_bytes: Mapping[int, int] = field(default_factory=dict)

    @property
    @abstractmethod
    def stage(self) -> str:
        """The phase of the epoch that the task belongs to."""

    def _body(self) -> list[Any]:
        jobs = [list(self.job_seconds.items()), list(self.job_bytes.items())]
        return [self.seconds, self.cpu_seconds, self.executor, list(self.memory.items()), jobs]


def _decode_task_report(
    seconds: float, cpu: float, executor: str, memory: list[Any], jobs: list[list[Any]]
) -> tuple[float, float, str, dict[int, tuple[int, int]], dict[int, float], dict[int, int]]:
    by_pid = {pid: (own, shared) for pid, (own, shared) in memory}
    return seconds, cpu, executor, by_pid, dict(jobs[0]), dict(jobs[1])


@dataclass(frozen=True)
class ScanReport(TaskReport):
    """What a scan task did, and the event times of the oldest and the newest event that is not late."""

    kind = "scanned"
    events: int = 0
    bytes: int = 0
    late: int = 0
    dead_letters: int = 0
    oldest: int | None = None
    newest: int | None = None

    @property
    def stage(self) -> str:
        return "scan"

    def body(self) -> list[Any]:
        counts = [self.events, self.bytes, self.late, self.dead_letters, self.oldest, self.newest]
        return [self._body(), counts]


@dataclass(frozen=True)
class SliceWork:
    """What one stage did in a slice: seconds, rows received and the bytes that they travelled in; the buckets that
    received rows, and how many each."""

    seconds: float
    rows: int = 0
    bytes: int = 0
    buckets: Sequence[int] = ()
    counts: Sequence[int] = ()


@dataclass(frozen=True)
class PendingRows:
    """How many rows of a template group wait for each future instant, by the time of a stream; and the batches in which
    it has jobs, if it can emit in batches."""

    stream: str
    batches: tuple[int, ...]
    rows: Mapping[int, int]


@dataclass(frozen=True)
class SliceReport(TaskReport):
    """What a slice task did at one level, and how it changed the state."""

    kind = "sliced"
    level: int = 1
    slice: int = 0
    rows: int = 0
    changes: tuple[CollectionChanges, ...] = ()
    work: Mapping[str, SliceWork] = field(default_factory=dict)
    pending: tuple[PendingRows, ...] = ()

    @property
    def stage(self) -> str:
        return f"slice {self.level}"

    def body(self) -> list[Any]:
        return [
            self._body(),
            [self.level, self.slice, self.rows],
            [[owner, name, _changes_to_json(change)] for owner, name, change in self.changes],
            {name: [w.seconds, w.rows, w.bytes, w.buckets, w.counts] for name, w in self.work.items()},
            [[one.stream, one.batches, list(one.rows.items())] for one in self.pending],
        ]


@dataclass(frozen=True)
class EpochError(Message):
    """An error that a task foresees: it ends the epoch, and Spark does not retry the task."""

    kind = "error"
    error: PenstockError

    def body(self) -> list[Any]:
        return [error_to_json(self.error)]


@dataclass(frozen=True)
class JobError(Message):
    """A job, by its number, that fails alone."""

    kind = "failed"
    job: int
    error: PenstockError

    def body(self) -> list[Any]:
        return [self.job, error_to_json(self.error)]


# -- decoding --------------------------------------------------------------------------------------------


class Envelope:
    """An encoded message: its header is decoded, its frame is not."""

    def __init__(self, data: bytes) -> None:
        (length,) = struct.unpack_from(">I", data)
        self.data = data
        self.kind: str
        self._body: list[Any]
        self._spilled: str | None
        self.kind, self._body, self._spilled = json.loads(data[4 : 4 + length])
        self._frame_at = 4 + length

    @property
    def target(self) -> EdgeTarget | None:
        """Where rows go; None for any other message."""
        return EdgeTarget(self._body[0], self._body[1]) if self.kind == Rows.kind else None

    def open(self) -> Message:
        """Decode the message."""
        body = self._body
        match self.kind:
            case Rows.kind:
                return Rows(EdgeTarget(body[0], body[1]), self._frame(), body[2])
            case Times.kind:
                return Times(body[0])
            case SideOutput.kind:
                return SideOutput(self._frame())
            case ScanReport.kind:
                return ScanReport(*_decode_task_report(*body[0]), *body[1])
            case SliceReport.kind:
                common, (level, slice_, rows), changes, work, pending = body
                return SliceReport(
                    *_decode_task_report(*common),
                    level,
                    slice_,
                    rows,
                    tuple((owner, name, _changes_from_json(change)) for owner, name, change in changes),
                    {name: SliceWork(*one) for name, one in work.items()},
                    tuple(
                        PendingRows(stream, tuple(batches), dict(rows)) for stream, batches, rows in pending
                    ),
                )
            case EpochError.kind:
                return EpochError(error_from_json(body[0]))
            case JobError.kind:
                return JobError(body[0], error_from_json(body[1]))
        raise AssertionError(f"there is no message {self.kind}")

    def _frame(self) -> pl.DataFrame:
        if self._spilled is not None:
            with pa.memory_map(self._spilled) as mapped:
                return from_file(mapped)
        return from_stream(memoryview(self.data)[self._frame_at :])


def open_message(data: bytes) -> Message:
    """Decode a message."""
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
    """An error as JSON."""
    return {
        "class": type(error).__name__,
        "condition": error.condition,
        "primary": error.primary,
        "detail": error.detail,
        "hint": error.hint,
        "where": error.where,
        "is_transient": error.is_transient,
    }


def error_from_json(body: Mapping[str, Any]) -> PenstockError:
    """An error from JSON."""
    kinds = {kind.__name__: kind for kind in (UserError, ExternalError, InternalError)}
    return kinds.get(body["class"], InternalError)(
        body["condition"],
        body["primary"],
        detail=body["detail"],
        hint=body["hint"],
        where=body["where"],
        is_transient=body.get("is_transient", False),
    )
