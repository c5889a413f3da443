"""Epoch records: the durable plan of an epoch, written before it executes, and the offsets between which it reads.

An epoch that is repeated after a crash executes by the same record.

On disk a record is a line of JSON. Its keys are part of the state format; parts that an epoch lacks are left out:

    {"start": OFFSET, "end": OFFSET, "slices": n, "buckets": n, "checkpoint_every": n, "before": ..., "maps": ...,
     "generation": n, "format": n}
    OFFSET: {"epoch": n, "at": {stream: {partition: offset}}, "from": ..., "finished": ..., "idle": ..., "closed": ...,
             "now": t, "clocks": {stream: t}, "commands": n, "begun_late": ..., "upto": ..., "copies": ...,
             "identities": {stream: {partition: text}}}

The start of a record has no identities: the end of the record before has them.

Guarantees: a record that is read back equals the one that was written. Other content raises ValueError, which the
reader of the file reports as STATE_DAMAGED.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.logs.contract import Span
from penstock.state.bucket_map import BucketMaps
from penstock.state.skipped_spans import SkippedPartitions
from penstock.state.state_facts import FORMAT, KEY, refuse_newer

#: stream -> partition -> number
PerPartition = Mapping[str, Mapping[str, int]]
#: stream -> partitions
Partitions = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Offset:
    """How far an epoch reads every stream, and all else that its input depends on, by stream.

    Without arguments it is the offset before the first epoch.
    """

    epoch: int = -1
    #: the offset that is reached in each partition
    at: PerPartition = field(default_factory=dict)
    #: the first offset of the partitions that are new in this epoch
    starts: PerPartition = field(default_factory=dict)
    finished: Partitions = field(default_factory=dict)
    idle: Partitions = field(default_factory=dict)
    #: whether the log will get no more partitions
    closed: Mapping[str, bool] = field(default_factory=dict)
    #: the wall clock when the epoch was admitted, in microseconds since 1970
    admitted_at: int | None = None
    #: of streams that are ahead of the wall clock, the time from which future events are measured instead
    clocks: Mapping[str, int] = field(default_factory=dict)
    #: the number of the newest command that the epoch takes in; 0 where there is none
    commands: int = 0
    #: of replicated logs, the partitions that start without records that only an unreachable copy may have
    started_late: Partitions = field(default_factory=dict)
    #: where watermarks are limited, so that one epoch does not emit everything that is due: the highest instant, and
    #: how many batches of jobs are one instant ahead of it (see `epoch/rate_control.py`)
    watermark_limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: of replicated logs, the copy that every replica reads a partition's span from
    copies: PerPartition = field(default_factory=dict)
    #: by what logs recognise their partitions, in a form of their own; evidence, not a part of what is read
    identities: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)

    def spans_until(self, end: Offset) -> Iterator[tuple[str, Span]]:
        """The spans between this offset and a later one, each with its stream."""
        for stream, reached in end.at.items():
            before, starts, copies = (part.get(stream, {}) for part in (self.at, end.starts, end.copies))
            identities = end.identities.get(stream, {})
            for partition, offset in reached.items():
                start = before.get(partition, starts.get(partition, 0))
                if offset > start:
                    yield (
                        stream,
                        Span(partition, start, offset, copies.get(partition), identities.get(partition)),
                    )

    def is_at(self, other: Offset) -> bool:
        """Whether all streams are at the same position as at another offset: nothing is read in between."""
        return (
            self.at == other.at
            and self.finished == other.finished
            and self.idle == other.idle
            and self.closed == other.closed
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON on disk; it shares its parts with the offset."""
        body: dict[str, Any] = {
            "epoch": self.epoch,
            "at": self.at,
            "from": self.starts,
            "finished": self.finished,
            "idle": self.idle,
            "closed": self.closed,
        }
        if self.admitted_at is not None:
            body["now"] = self.admitted_at
        optional = {
            "clocks": self.clocks,
            "commands": self.commands,
            "begun_late": self.started_late,
            "upto": self.watermark_limits,
            "copies": self.copies,
            "identities": self.identities,
        }
        return body | {key: part for key, part in optional.items() if part}

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
            clocks={name: _number(at) for name, at in _by_stream(body.get("clocks", {}), int).items()},
            commands=_number(body.get("commands", 0)),
            started_late=_partitions(body.get("begun_late", {})),
            watermark_limits={name: (_number(at), _number(ahead)) for name, (at, ahead) in limits.items()},
            copies=_numbers(body.get("copies", {})),
            identities=_texts(body.get("identities", {})),
        )


@dataclass(frozen=True)
class WatermarksAndCounters:
    """The watermarks and counters before an epoch that may be skipped after a loss of state."""

    #: by stream, the time before which events are late; None: no event yet
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochRecord:
    """The plan of an epoch: what it reads, and how its work is divided."""

    start: Offset
    end: Offset
    slices: int = 0
    buckets: int = 0
    maps: BucketMaps | None = None
    #: the checkpoint interval in epochs, where not every epoch is durable
    checkpoint_interval: int | None = None
    #: where time and counters were before the epoch, where outputs may lose it
    before: WatermarksAndCounters | None = None
    #: the generation of the engine that wrote it; 0 if it has none
    generation: int = 0
    #: partitions without whose spans it executes; not part of the file (see `skipped_spans`)
    skips: SkippedPartitions = frozenset()

    @property
    def commands(self) -> int:
        """The number of the newest command that the epoch takes in."""
        return self.end.commands

    @property
    def spans(self) -> Iterator[tuple[str, Span]]:
        """The spans that the epoch reads, each with its stream."""
        return (
            one for one in self.start.spans_until(self.end) if (one[0], one[1].partition) not in self.skips
        )

    @property
    def skipped_spans(self) -> list[tuple[str, Span]]:
        """The spans that it does without, each with its stream."""
        return [one for one in self.start.spans_until(self.end) if (one[0], one[1].partition) in self.skips]

    def digest(self) -> str:
        """What distinguishes the epoch from another one of its number: a digest of its end, with the instant when it
        was admitted. Each repetition has the same."""
        end = replace(self.end, identities={}).to_json()
        return hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()[:16]

    def to_bytes(self) -> bytes:
        """One line of JSON."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    def to_json(self) -> dict[str, Any]:
        """The JSON on disk."""
        start = replace(self.start, identities={})
        body: dict[str, Any] = {"start": start.to_json(), "end": self.end.to_json()}
        optional = {"slices": self.slices, "buckets": self.buckets}
        body |= {key: number for key, number in optional.items() if number}
        if self.checkpoint_interval is not None:
            body["checkpoint_every"] = self.checkpoint_interval
        if self.before is not None:
            body["before"] = {"watermarks": self.before.watermarks, "counters": self.before.counters}
        if self.maps is not None:
            body["maps"] = self.maps.to_json()
        if self.generation:
            body["generation"] = self.generation
        return body | {KEY: FORMAT}

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
            None if maps is None else BucketMaps.from_json(maps),
            None if every is None else _number(every),
            None if before is None else WatermarksAndCounters(before["watermarks"], before["counters"]),
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


def _texts(found: Any) -> Mapping[str, Mapping[str, str]]:
    streams = _by_stream(found, dict)
    for name, partitions in streams.items():
        if partitions and set(map(type, partitions.values())) != {str}:
            raise ValueError(f"{partitions!r} of the stream {name} are no texts")
    return streams


def _partitions(found: Any) -> Partitions:
    return {name: tuple(partitions) for name, partitions in _by_stream(found, list).items()}
