"""Seats: the bucket maps that follow from which executors there are. Pure.

Receives maps and the executor of each slice; hands maps in which every bucket has an owner that is there, new
sub-queries begin on all executors, and slices that nobody has are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from penstock.epoch.stage_maps import maps_by_stage
from penstock.query.physical import Plan
from penstock.scaling.measurements import VACANT
from penstock.state.bucket_map import BucketMap, BucketMaps
from penstock.state.buckets import assign_evenly


def adopted(
    maps: BucketMaps, plan: Plan, placement: Sequence[str], leaving: Collection[str] = ()
) -> BucketMaps:
    """With the buckets of slices without executor given to those that have one, and the map of sub-queries to come
    assign_evenly over all that stay. No other bucket moves."""
    there = [slice_ for slice_, owner in enumerate(placement) if owner != VACANT]
    stay = [slice_ for slice_ in there if placement[slice_] not in leaving] or there
    known = frozenset(there)
    for operator in (None, *maps.operators):
        owners = maps.default if operator is None else maps.of(operator)
        lost = [bucket for bucket, slice_ in enumerate(owners) if slice_ not in known]
        if lost:
            maps = maps.with_owners(operator, {bucket: stay[n % len(stay)] for n, bucket in enumerate(lost)})
    anew = tuple(stay[at] for at in assign_evenly(maps.buckets, min(len(stay), maps.buckets)))
    if set(maps.default) == set(anew):
        return maps
    own = {sub: owners for sub, owners in maps_by_stage(maps, plan).items() if owners != anew}
    return replace(maps, default=anew, operators=own)


@dataclass(frozen=True)
class Away:
    """Buckets of executors that died: the maps before that, and those that give the buckets to others."""

    before: BucketMaps
    since: BucketMaps

    def holds(self, maps: BucketMaps) -> bool:
        """Whether nothing else was moved meanwhile."""
        return (self.since.default, self.since.operators) == (maps.default, maps.operators)

    def back(self, placement: Sequence[str]) -> BucketMaps | None:
        """The maps as they were, once all their seats are taken again."""
        used = {
            slice_ for owners in (self.before.default, *self.before.operators.values()) for slice_ in owners
        }
        taken = all(slice_ < len(placement) and placement[slice_] != VACANT for slice_ in used)
        return self.before if taken else None


@dataclass(frozen=True)
class Renumbered:
    """Maps without the slices that nobody has, and the old numbers of those that are left."""

    maps: BucketMaps
    kept: tuple[int, ...]


def renumbered(maps: BucketMaps, placement: Sequence[str]) -> Renumbered | None:
    """The same maps with fewer slices, once most of them are vacant: each is a task of every stage, also without
    buckets. No bucket goes to another executor. None while it is not worth it, or a bucket lies on a vacant slice."""
    kept = tuple(slice_ for slice_, owner in enumerate(placement) if owner != VACANT)
    number = {old: new for new, old in enumerate(kept)}
    everyone = (maps.default, *maps.operators.values())
    if 2 * len(kept) >= len(placement) or any(not set(owners) <= number.keys() for owners in everyone):
        return None

    def same(owners: BucketMap) -> BucketMap:
        return tuple(number[slice_] for slice_ in owners)

    places = tuple(maps.location_of(slice_) for slice_ in kept)
    operators = {name: same(owners) for name, owners in maps.operators.items()}
    return Renumbered(replace(maps, default=same(maps.default), operators=operators, locations=places), kept)
