"""Epoch records: the durable plan of an epoch, written before it executes, and the offsets between which it reads.

Receives what admission has decided; returns it to whoever executes the epoch, now or again after a crash.

On disk a record is a line of JSON. Its keys are part of the state format; a part that an epoch lacks is left out:

    {"start": OFFSET, "end": OFFSET, "slices": n, "buckets": n, "checkpoint_every": n, "before": ..., "maps": ...,
     "generation": n, "format": n}
    OFFSET: {"epoch": n, "at": {stream: {partition: offset}}, "from": ..., "finished": ..., "idle": ..., "closed": ...,
             "now": t, "commands": n, "begun_late": ..., "upto": ..., "copies": ...}

Guarantees: a record that is read back equals the one that was written. What is no record raises ValueError, which
whoever reads the file reports as STATE_DAMAGED.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.logs.contract import Span
from penstock.state.bucket_map import Maps
from penstock.state.format import FORMAT, KEY, refuse_newer

#: stream -> partition -> number
PerPartition = Mapping[str, Mapping[str, int]]
#: stream -> partitions
Partitions = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Offset:
    """How far an epoch reads every stream, and whatever else its input depends on, by stream.

    Made without arguments it is the offset before the first epoch.
    """

    epoch: int = -1
    #: the offset that is reached in each partition
    at: PerPartition = field(default_factory=dict)
    #: where the partitions start that this epoch is the first to see
    starts: PerPartition = field(default_factory=dict)
    finished: Partitions = field(default_factory=dict)
    idle: Partitions = field(default_factory=dict)
    #: whether no partition will be added to the log
    closed: Mapping[str, bool] = field(default_factory=dict)
    #: the wall clock when the epoch was admitted, in microseconds since 1970
    admitted_at: int | None = None
    #: the number of the newest command that the epoch takes in; 0 where there is none
    commands: int = 0
    #: of replicated logs, the partitions that start without what a copy may have that is away
    started_late: Partitions = field(default_factory=dict)
    #: where watermarks are held, so that one epoch does not emit all that is due: up to which instant, and how many
    #: batches of jobs do not wait for it (see `epoch/emission_limit.py`)
    watermark_limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: of replicated logs, the copy that everybody reads a partition's span from
    copies: PerPartition = field(default_factory=dict)

    def spans_until(self, end: Offset) -> Iterator[tuple[str, Span]]:
        """The spans that lie between this offset and a later one, each with its stream."""
        for stream, reached in end.at.items():
            before, starts, copies = (part.get(stream, {}) for part in (self.at, end.starts, end.copies))
            for partition, offset in reached.items():
                start = before.get(partition, starts.get(partition, 0))
                if offset > start:
                    yield stream, Span(partition, start, offset, copies.get(partition))

    def is_at(self, other: Offset) -> bool:
        """Whether the streams stand where they do at another offset: nothing is read in between, nor known anew."""
        return (
            self.at == other.at
            and self.finished == other.finished
            and self.idle == other.idle
            and self.closed == other.closed
        )

    def to_json(self) -> dict[str, Any]:
        """As it lies on disk; what it names is shared with the offset, not copied."""
        told: dict[str, Any] = {
            "epoch": self.epoch,
            "at": self.at,
            "from": self.starts,
            "finished": self.finished,
            "idle": self.idle,
            "closed": self.closed,
        }
        if self.admitted_at is not None:
            told["now"] = self.admitted_at
        optional = {
            "commands": self.commands,
            "begun_late": self.started_late,
            "upto": self.watermark_limits,
            "copies": self.copies,
        }
        return told | {key: part for key, part in optional.items() if part}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Offset:
        """The offset that was written; ValueError, KeyError or TypeError if this is none."""
        limits = _by_stream(body.get("upto", {}), list)
        return Offset(
            epoch=_number(body["epoch"]),
            at=_numbers(body["at"]),
            starts=_numbers(body.get("from", {})),
            finished=_partitions(body.get("finished", {})),
            idle=_partitions(body.get("idle", {})),
            closed={
                name: bool(closed) for name, closed in _by_stream(body.get("closed", {}), object).items()
            },
            admitted_at=None if body.get("now") is None else _number(body["now"]),
            commands=_number(body.get("commands", 0)),
            started_late=_partitions(body.get("begun_late", {})),
            watermark_limits={name: (_number(at), _number(ahead)) for name, (at, ahead) in limits.items()},
            copies=_numbers(body.get("copies", {})),
        )


@dataclass(frozen=True)
class Progress:
    """What the state before an epoch had come to, where its epoch may be left out after a loss."""

    #: before which time nothing is taken in any more, per stream; None: no event yet
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochRecord:
    """What an epoch consists of, and how its work is cut."""

    start: Offset
    end: Offset
    slices: int = 0
    buckets: int = 0
    maps: Maps | None = None
    #: where not every epoch is durable: the checkpoint interval, in epochs
    checkpoint_interval: int | None = None
    #: where outputs may lose the epoch: what had been reached before it
    before: Progress | None = None
    #: of the engine that wrote it; 0 where it has none
    generation: int = 0

    @property
    def commands(self) -> int:
        """The number of the newest command that the epoch takes in."""
        return self.end.commands

    @property
    def spans(self) -> Iterator[tuple[str, Span]]:
        """The spans that the epoch reads, each with its stream."""
        return self.start.spans_until(self.end)

    def to_bytes(self) -> bytes:
        """One line of JSON."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    def to_json(self) -> dict[str, Any]:
        """As it lies on disk."""
        told: dict[str, Any] = {"start": self.start.to_json(), "end": self.end.to_json()}
        optional = {"slices": self.slices, "buckets": self.buckets}
        told |= {key: number for key, number in optional.items() if number}
        if self.checkpoint_interval is not None:
            told["checkpoint_every"] = self.checkpoint_interval
        if self.before is not None:
            told["before"] = {"watermarks": self.before.watermarks, "counters": self.before.counters}
        if self.maps is not None:
            told["maps"] = self.maps.to_json()
        if self.generation:
            told["generation"] = self.generation
        return told | {KEY: FORMAT}

    @staticmethod
    def from_bytes(content: bytes, name: str = "an epoch record") -> EpochRecord:
        """The record that was written; ValueError if this is none, UserError if a newer Penstock wrote it."""
        body = json.loads(content)
        try:
            refuse_newer(name, body)
            return EpochRecord.from_json(body)
        except (KeyError, TypeError, AttributeError) as failure:
            raise ValueError(f"{failure!r}") from failure

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> EpochRecord:
        """The record that was written; ValueError, KeyError or TypeError if this is none."""
        before, maps, every = body.get("before"), body.get("maps"), body.get("checkpoint_every")
        return EpochRecord(
            Offset.from_json(body["start"]),
            Offset.from_json(body["end"]),
            _number(body.get("slices", 0)),
            _number(body.get("buckets", 0)),
            None if maps is None else Maps.from_json(maps),
            None if every is None else _number(every),
            None if before is None else Progress(before["watermarks"], before["counters"]),
            _number(body.get("generation", 0)),
        )


def _number(found: Any) -> int:
    if type(found) is not int:
        raise ValueError(f"{found!r} is no whole number")
    return found


def _by_stream(found: Any, kind: type) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"{found!r} names no streams")
    for name, part in found.items():
        if not isinstance(part, kind):
            raise ValueError(f"{part!r} of the stream {name} is no {kind.__name__}")
    return found


def _numbers(found: Any) -> PerPartition:
    streams = _by_stream(found, dict)
    for name, partitions in streams.items():
        if partitions and set(map(type, partitions.values())) != {int}:
            raise ValueError(f"{partitions!r} of the stream {name} are no whole numbers")
    return streams


def _partitions(found: Any) -> Partitions:
    return {name: tuple(partitions) for name, partitions in _by_stream(found, list).items()}
