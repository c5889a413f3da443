"""Manifests: the list of runs that is the state after an epoch, and what else the next epoch needs.

The driver makes the next manifest of the changes of all slices, and `epoch_store` writes it.

Guarantees: a damaged manifest is detected by its checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.state.collection import Changes
from penstock.state.run import RunEntry
from penstock.state.state_facts import FORMAT, KEY, refuse_newer

#: operator id -> collection name -> entries, oldest first
Collections = Mapping[str, Mapping[str, tuple[RunEntry, ...]]]


@dataclass(frozen=True)
class PartitionTime:
    """How far a partition has been read in event time: the highest seen, in microseconds (None: no event yet).

    `ordinal` breaks ties of event time between partitions; a partition has the same one for good.
    """

    ordinal: int
    highest: int | None = None
    idle: bool = False
    finished: bool = False


@dataclass(frozen=True)
class StreamTime:
    """The event time of one stream: its partitions and its watermark.

    `ahead`: so many batches of jobs have emitted what ends one instant after the watermark. `forgotten` stands for all
    partitions that offsets no longer name: their highest time, and the highest of their ordinals.
    """

    partitions: Mapping[str, PartitionTime] = field(default_factory=dict)
    watermark: int | None = None
    ahead: int = 0
    forgotten: PartitionTime | None = None

    @property
    def known_partitions(self) -> tuple[PartitionTime, ...]:
        """The partitions, and one for those that are forgotten."""
        partitions = tuple(self.partitions.values())
        return partitions if self.forgotten is None else (*partitions, self.forgotten)

    @property
    def late_before(self) -> int | None:
        """The time before which events are late: the watermark, or the instant after it once some of what ends then was
        emitted."""
        return self.watermark if self.watermark is None or not self.ahead else self.watermark + 1


@dataclass(frozen=True)
class Manifest:
    """The state after `epoch`; epoch -1 is the empty state before the first.

    `last_results` has the last emitted result of each ranking (Arrow IPC, base64), with which emission on change
    compares. `counters` are totals since the beginning, by name. `generation` is that of the engine that wrote it.
    `gap`: if epochs were skipped, the watermark of each stream by then; results before it were emitted or are lost.
    By id of each state: `identities`, `versions` of its form that are not the first, and `jobs`, the numbers of the
    jobs that it belongs to, where jobs come and go (see `continuity`). `format` is that of the file it was read from.
    """

    epoch: int = -1
    collections: Collections = field(default_factory=dict)
    streams: Mapping[str, StreamTime] = field(default_factory=dict)
    last_results: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    gap: Mapping[str, int] = field(default_factory=dict)
    identities: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    jobs: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def entries(self, operator: str, collection: str) -> tuple[RunEntry, ...]:
        return self.collections.get(operator, {}).get(collection, ())

    def runs(self) -> set[str]:
        """The names of all runs of this state."""
        return {
            entry.name
            for group in self.collections.values()
            for entries in group.values()
            for entry in entries
        }

    def state_bytes(self) -> int:
        unique = {
            e.name: e.bytes
            for group in self.collections.values()
            for entries in group.values()
            for e in entries
        }
        return sum(unique.values())

    def advance(self, epoch: int, changes: Iterable[tuple[str, str, Changes]], **parts: object) -> Manifest:
        """The manifest of the next epoch, with these changes (operator, collection, changes) and other parts."""
        collections = {op: dict(group) for op, group in self.collections.items()}
        for operator, name, change in changes:
            group = collections.setdefault(operator, {})
            group[name] = apply_changes(group.get(name, ()), change)
        after = replace(self, epoch=epoch, collections=collections, **parts)  # type: ignore[arg-type]
        if not self.gap:
            return after
        marks = {name: stream.watermark for name, stream in after.streams.items()}
        ahead = {
            name: mark for name, mark in self.gap.items() if (now := marks.get(name)) is None or now < mark
        }
        return replace(after, gap=ahead)

    def times_to_json(self) -> dict[str, object]:
        """The times of the streams and the counters, as JSON."""
        return {
            "streams": {
                name: {
                    "watermark": stream.watermark,
                    **({"ahead": stream.ahead} if stream.ahead else {}),
                    **(
                        {"forgotten": [stream.forgotten.ordinal, stream.forgotten.highest]}
                        if stream.forgotten
                        else {}
                    ),
                    "partitions": {
                        pid: [p.ordinal, p.highest, p.idle, p.finished]
                        for pid, p in stream.partitions.items()
                    },
                }
                for name, stream in self.streams.items()
            },
            "counters": dict(self.counters),
        }

    @staticmethod
    def times_from_json(body: Mapping[str, Any]) -> dict[str, Any]:
        """The parts of a manifest that `times_to_json` returned."""
        streams = {
            name: StreamTime(
                {pid: PartitionTime(*p) for pid, p in s["partitions"].items()},
                s["watermark"],
                s.get("ahead", 0),
                PartitionTime(s["forgotten"][0], s["forgotten"][1], idle=True) if "forgotten" in s else None,
            )
            for name, s in body["streams"].items()
        }
        return {"streams": streams, "counters": body["counters"]}

    def to_bytes(self) -> bytes:
        """One line of JSON and its checksum."""
        body = {
            "epoch": self.epoch,
            "generation": self.generation,
            "collections": {
                op: {name: [entry.to_json() for entry in entries] for name, entries in sorted(group.items())}
                for op, group in sorted(self.collections.items())
            },
            "answers": dict(self.last_results),
            **self.times_to_json(),
        }
        if self.gap:
            body["gap"] = dict(self.gap)
        if self.format > 1:
            body[KEY] = self.format
        if self.identities:
            body["identities"] = dict(self.identities)
        if self.versions:
            body["versions"] = {id_: dict(versions) for id_, versions in self.versions.items()}
        if self.jobs:
            body["jobs"] = dict(self.jobs)
        text = json.dumps(body, separators=(",", ":")).encode()
        return b"%s\n%08x\n" % (text, zlib.crc32(text))

    @staticmethod
    def from_bytes(content: bytes) -> Manifest:
        """The manifest that was written; ValueError if any byte has changed."""
        text, _, check = content.rstrip(b"\n").rpartition(b"\n")
        if not check or zlib.crc32(text) != int(check, 16):
            raise ValueError("the checksum does not match")
        body = json.loads(text)
        refuse_newer("the manifest", body)
        return Manifest(
            epoch=body["epoch"],
            collections={
                op: {
                    name: tuple(RunEntry.from_json(entry) for entry in entries)
                    for name, entries in group.items()
                }
                for op, group in body["collections"].items()
            },
            last_results=body["answers"],
            generation=body.get("generation", 0),
            gap=body.get("gap", {}),
            identities=body.get("identities", {}),
            versions=body.get("versions", {}),
            jobs=body.get("jobs", {}),
            format=body.get(KEY, 1),
            **Manifest.times_from_json(body),
        )


def apply_changes(entries: tuple[RunEntry, ...], change: Changes) -> tuple[RunEntry, ...]:
    """The entries of a collection after the changes of a slice."""
    dropped: dict[str, frozenset[int]] = {}
    for run, buckets in change.dropped:
        dropped[run] = dropped.get(run, frozenset()) | buckets
    remaining = [entry.without(dropped[entry.name]) if entry.name in dropped else entry for entry in entries]
    together = [entry for entry in remaining if entry is not None] + list(change.added)
    return tuple(sorted(together, key=lambda entry: entry.through))
