"""Gives every stage its bucket map, and finds what a change of maps migrates. Pure.

Stages between which rows stay inside a slice are a *family* (`Plan.families`): they share one map.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.query.physical import Plan
from penstock.query.steps import EdgeSource
from penstock.state.bucket_map import BucketMap, BucketMaps, ExecutorLocation
from penstock.state.continuity import output_state_id
from penstock.state.manifest import Collections
from penstock.state.run import Piece, RunEntry, piece_of


def maps_by_stage(maps: BucketMaps, plan: Plan) -> dict[str, BucketMap]:
    """The map of every stage: that of the first of its family which has one."""
    return {
        stage: owners
        for family in plan.families
        for owners in [next((maps.operators[s] for s in family if s in maps.operators), maps.default)]
        for stage in family
    }


def stage_runs(plan: Plan, collections: Collections, stage: str) -> Iterator[RunEntry]:
    """The runs of a stage's state: its own, and those of the rankings of its results."""
    owners = [stage]
    for edge in plan.edges_from(EdgeSource("stage", stage)):
        output = edge.target.output
        if output is not None and plan.outputs[output].top is not None:
            owners.append(output_state_id(output))
    for owner in owners:
        for entries in collections.get(owner, {}).values():
            yield from entries


@dataclass(frozen=True)
class MigrationPlan:
    """What a change of maps migrates: buckets by family (named by its first stage), and for each place that gets some
    the pieces of runs, with their bytes, that are read there now and were not before."""

    buckets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    pieces: Mapping[ExecutorLocation | None, Mapping[Piece, int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many buckets migrate."""
        return sum(map(len, self.buckets.values()))

    @property
    def bytes(self) -> int:
        """Bytes to read, over all places."""
        return sum(sum(pieces.values()) for pieces in self.pieces.values())

    @property
    def most_bytes(self) -> int:
        """Bytes to read at the place that has most to read."""
        return max((sum(pieces.values()) for pieces in self.pieces.values()), default=0)


def plan_migration(
    plan: Plan, collections: Collections, before: BucketMaps, after: BucketMaps
) -> MigrationPlan:
    """What is elsewhere once `after` is in force instead of `before`."""
    old, new = maps_by_stage(before, plan), maps_by_stage(after, plan)
    buckets: dict[str, frozenset[int]] = {}
    pieces: dict[ExecutorLocation | None, dict[Piece, int]] = {}
    for family in plan.families:
        old_owners, owners = old[family[0]], new[family[0]]
        migrating = [
            bucket
            for bucket, (was, becomes) in enumerate(zip(old_owners, owners, strict=True))
            if _migrates(before, was, after, becomes)
        ]
        if not migrating:
            continue
        buckets[family[0]] = frozenset(migrating)
        entries = [entry for stage in family for entry in stage_runs(plan, collections, stage)]
        for slice_ in {owners[bucket] for bucket in migrating}:
            place = after.location_of(slice_)
            held = _pieces_at(entries, before, old_owners, place)
            wanted = pieces.setdefault(place, {})
            for entry in entries:
                owned = slice_buckets(owners, slice_)
                piece, rows = piece_of(entry, owned), entry.rows_in(owned)
                if rows and piece not in held and Piece(entry.name) not in held:
                    share = 1.0 if piece.ranges is None else rows / entry.rows
                    wanted[piece] = round(entry.bytes * share)
    return MigrationPlan(buckets, pieces)


def _pieces_at(
    entries: Sequence[RunEntry], maps: BucketMaps, owners: BucketMap, place: ExecutorLocation | None
) -> set[Piece]:
    """The pieces of runs that are read at a place."""
    slices = {slice_ for slice_ in owners if place is not None and maps.location_of(slice_) == place}
    return {
        piece_of(entry, owned)
        for owned in (slice_buckets(owners, slice_) for slice_ in slices)
        for entry in entries
        if entry.rows_in(owned)
    }


@functools.lru_cache(maxsize=1024)
def slice_buckets(owners: BucketMap, slice_: int) -> frozenset[int]:
    """The buckets of a slice."""
    return frozenset(bucket for bucket, owner in enumerate(owners) if owner == slice_)


def _migrates(before: BucketMaps, was: int, after: BucketMaps, becomes: int) -> bool:
    """Whether a bucket's work goes to another executor or, where executors are not known, to another slice."""
    place = after.location_of(becomes)
    return was != becomes if place is None else before.location_of(was) != place


def bucket_bytes(entries: Iterable[RunEntry], buckets: int) -> tuple[int, ...]:
    """About how many bytes of state each bucket has: its share of the rows of every run."""
    sums = [0.0] * buckets
    for entry in entries:
        row_bytes = entry.bytes / max(entry.rows, 1)
        for bucket, (_, count) in entry.sections.items():
            sums[bucket] += row_bytes * count
    return tuple(round(size) for size in sums)
