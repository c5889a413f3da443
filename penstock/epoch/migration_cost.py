"""Finds what a change of bucket maps migrates, estimates what that costs by each protocol, and chooses one. Pure.

- `warm`: the new owner reads the runs while the old one continues; then the switch costs only what came meanwhile.
- `recreate`: no state moves; the switch waits until the windows open now are over.
- `immediate`: the switch comes at once; the new owner reads what it needs when it needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import UserError
from penstock.query.physical import Plan, maps_by_stage, stage_runs
from penstock.state.bucket_map import BucketMap, BucketMaps, ExecutorLocation, slice_buckets
from penstock.state.manifest import Collections
from penstock.state.run import Piece, RunEntry, piece_of

Protocol = Literal["immediate", "warm", "recreate"]


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


def _migrates(before: BucketMaps, was: int, after: BucketMaps, becomes: int) -> bool:
    """Whether a bucket's work goes to another executor or, where executors are not known, to another slice."""
    place = after.location_of(becomes)
    return was != becomes if place is None else before.location_of(was) != place


@dataclass(frozen=True)
class MigrationRules:
    """What a migration may cost."""

    #: how much longer than usual the epoch of the switch may take, in seconds
    pause_seconds: float = 0.1
    #: how long a migration may wait for windows to end, in seconds
    patience_seconds: float = 30.0
    #: how often the new owner reads before the switch: the state, then what came meanwhile
    most_rounds: int = 4


@dataclass(frozen=True)
class Circumstances:
    """What an estimate is made of."""

    #: bytes of runs to read: over all places, and at the place that has most to read
    bytes: int
    most_bytes: int
    #: bytes that an epoch adds to them, at the place that has most to read
    bytes_per_epoch: float
    #: bytes that an executor reads, verifies and unpacks a second
    read_bytes_per_second: float
    #: how long an epoch takes
    epoch_seconds: float
    #: whether it is known where the new owners run, so that their caches can be filled
    placed: bool
    #: seconds until all windows open now are over; None where recreation is not possible
    windows_end_in: float | None = None


@dataclass(frozen=True)
class Estimate:
    """What a protocol would cost: the pause, the bytes read because of it, the seconds until the switch."""

    protocol: Protocol
    pause_seconds: float
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The protocol, why, and the estimates it was compared by."""

    protocol: Protocol
    reason: str
    estimates: tuple[Estimate, ...]


def estimate_costs(now: Circumstances, rules: MigrationRules) -> tuple[Estimate, ...]:
    """Estimate each protocol that is possible."""
    rate, epoch = max(now.read_bytes_per_second, 1.0), max(now.epoch_seconds, 1e-3)
    estimates = [Estimate("immediate", now.most_bytes / rate, now.bytes, 0.0)]
    if now.placed:
        first = math.ceil(now.most_bytes / rate / epoch) or 1
        rounds = 1 if first * now.bytes_per_epoch / rate <= rules.pause_seconds / 2 else rules.most_rounds
        # what is read again: first all that came during the first round, then what came during that, and so on
        again, left = 0.0, first * now.bytes_per_epoch
        for _ in range(rounds - 1):
            again += left
            left = max(1.0, math.ceil(left / rate / epoch)) * now.bytes_per_epoch
        estimates.append(
            Estimate(
                "warm", left / rate, round(now.bytes + again), (first + rounds - 1) * epoch + left / rate
            )
        )
    if now.windows_end_in is not None:
        # what comes for the next windows before these are over
        rest = 2 * now.bytes_per_epoch
        estimates.append(Estimate("recreate", rest / rate, round(rest), now.windows_end_in + epoch))
    return tuple(estimates)


def choose_protocol(now: Circumstances, rules: MigrationRules, requested: Protocol | None = None) -> Choice:
    """Choose a protocol: the requested one, if it is possible; `immediate`, if its pause is short enough; else, of
    those whose pause and wait are short enough, the one that reads least; else the one with the shortest pause.

    On failure: raises `UserError` if `recreate` is requested and not possible: no wait can make it possible.
    """
    estimates = estimate_costs(now, rules)
    by_name = {estimate.protocol: estimate for estimate in estimates}
    if requested is not None:
        if requested in by_name:
            return Choice(requested, "requested", estimates)
        if requested == "recreate":
            raise UserError(
                "RECREATION_IMPOSSIBLE",
                "the state that moves cannot be recreated by waiting for its windows",
                detail="Its windows overlap, or it has state that is not of windows: some of it is always in use.",
                hint='Request "warm" or "immediate", or leave the choice to the estimate.',
            )
        best = choose_protocol(now, rules)
        why = "it is not known where the new owners run"
        return Choice(best.protocol, f"{requested} is not possible: {why}; {best.reason}", estimates)
    at_once = by_name["immediate"]
    if at_once.pause_seconds <= rules.pause_seconds:
        return Choice("immediate", f"a pause of {at_once.pause_seconds:.3f} s is short enough", estimates)
    fit = [
        estimate
        for estimate in estimates
        if estimate.pause_seconds <= rules.pause_seconds
        and (estimate.protocol != "recreate" or estimate.seconds <= rules.patience_seconds)
    ]
    if fit:
        best_fit = min(fit, key=lambda estimate: (estimate.bytes, estimate.seconds))
        return Choice(
            best_fit.protocol,
            f"reads {best_fit.bytes} bytes in {best_fit.seconds:.1f} s with a pause of {best_fit.pause_seconds:.3f} s; "
            f"at once it would be {at_once.pause_seconds:.3f} s",
            estimates,
        )
    patient = [e for e in estimates if e.protocol != "recreate" or e.seconds <= rules.patience_seconds]
    shortest = min(patient, key=lambda estimate: estimate.pause_seconds)
    return Choice(
        shortest.protocol,
        f"none keeps to a pause of {rules.pause_seconds:.3f} s; {shortest.pause_seconds:.3f} s comes nearest",
        estimates,
    )
