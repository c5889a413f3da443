"""Maps and plans: which sub-queries must share a map, and what a change of maps makes the new owners read. Pure.

Receives a plan, the state's collections and two maps; hands the map of each sub-query, and the runs that are wanted at
each place.

Sub-queries between which rows are handed over inside a slice are a *family* (`Plan.families`): they have one map.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.query.edges import EdgeSource
from penstock.query.physical import Plan
from penstock.state.bucket_map import BucketMap, BucketMaps, ExecutorLocation
from penstock.state.continuity import output_state_id
from penstock.state.manifest import Collections
from penstock.state.run import Piece, RunEntry, piece_of


def resolved(maps: BucketMaps, plan: Plan) -> dict[str, BucketMap]:
    """The map of every sub-query: that of the first of its family which has one."""
    return {
        sub: owners
        for family in plan.families
        for owners in [next((maps.operators[s] for s in family if s in maps.operators), maps.default)]
        for sub in family
    }


def collections_of(plan: Plan, subquery: str) -> list[str]:
    """The names under which a sub-query's state lies: its own, and those of the rankings of its results."""
    ranked = [
        output_state_id(output)
        for edge in plan.edges_from(EdgeSource("stage", subquery))
        if (output := edge.target.output) is not None and plan.outputs[output].top is not None
    ]
    return [subquery, *ranked]


def runs_of(plan: Plan, collections: Collections, subquery: str) -> Iterator[RunEntry]:
    """The runs of a sub-query's state."""
    for owner in collections_of(plan, subquery):
        for entries in collections.get(owner, {}).values():
            yield from entries


@dataclass(frozen=True)
class Moving:
    """What a change of maps moves: buckets per family (by its first sub-query), and for each place to which some go
    the pieces of runs, with their bytes, that are read there now and were not before."""

    buckets: Mapping[str, frozenset[int]] = field(default_factory=dict)
    wanted: Mapping[ExecutorLocation | None, Mapping[Piece, int]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.buckets.values()))

    @property
    def bytes(self) -> int:
        """Bytes to be read, over all places."""
        return sum(sum(pieces.values()) for pieces in self.wanted.values())

    @property
    def most_bytes(self) -> int:
        """Bytes to be read at the place that has most to read."""
        return max((sum(pieces.values()) for pieces in self.wanted.values()), default=0)


def moving(plan: Plan, collections: Collections, before: BucketMaps, after: BucketMaps) -> Moving:
    """What lies elsewhere once `after` is in force instead of `before`."""
    old, new = resolved(before, plan), resolved(after, plan)
    buckets: dict[str, frozenset[int]] = {}
    wanted: dict[ExecutorLocation | None, dict[Piece, int]] = {}
    for family in plan.families:
        was, will = old[family[0]], new[family[0]]
        gone = [b for b in range(len(will)) if _elsewhere(before, was[b], after, will[b])]
        if not gone:
            continue
        buckets[family[0]] = frozenset(gone)
        entries = [entry for sub in family for entry in runs_of(plan, collections, sub)]
        for slice_ in {will[bucket] for bucket in gone}:
            place = after.location_of(slice_)
            held = _pieces(entries, before, was, place)
            pieces = wanted.setdefault(place, {})
            for entry in entries:
                mine = owned(will, slice_)
                piece, rows = piece_of(entry, mine), entry.rows_in(mine)
                if rows and piece not in held and Piece(entry.name) not in held:
                    share = 1.0 if piece.ranges is None else rows / entry.rows
                    pieces[piece] = round(entry.bytes * share)
    return Moving(buckets, wanted)


def _pieces(
    entries: Sequence[RunEntry], maps: BucketMaps, owners: BucketMap, place: ExecutorLocation | None
) -> set[Piece]:
    """What is read at a place."""
    slices = {slice_ for slice_ in owners if place is not None and maps.location_of(slice_) == place}
    return {
        piece_of(entry, mine)
        for mine in (owned(owners, slice_) for slice_ in slices)
        for entry in entries
        if entry.rows_in(mine)
    }


@functools.lru_cache(maxsize=1024)
def owned(owners: BucketMap, slice_: int) -> frozenset[int]:
    """The buckets of a slice."""
    return frozenset(bucket for bucket, owner in enumerate(owners) if owner == slice_)


def _elsewhere(before: BucketMaps, was: int, after: BucketMaps, will: int) -> bool:
    """Whether a bucket's work goes elsewhere: to another executor or, where those are not known, another slice."""
    target = after.location_of(will)
    return was != will if target is None else before.location_of(was) != target


def bucket_bytes(entries: Iterable[RunEntry], buckets: int) -> tuple[int, ...]:
    """About how many bytes of state each bucket has: its share of the rows of every run."""
    sums = [0.0] * buckets
    for entry in entries:
        each = entry.bytes / max(entry.rows, 1)
        for bucket, (_, count) in entry.sections.items():
            sums[bucket] += each * count
    return tuple(round(size) for size in sums)
