"""Requests changes of the bucket maps for the executors that are there, and follows them until they are in use.

The functions are pure: maps in which every bucket has an executor, new stages start on all executors, and slices
without an executor are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from penstock.epoch.migration import MapChange, MigrationResult
from penstock.epoch.migration_cost import Protocol
from penstock.query.physical import Plan, maps_by_stage
from penstock.scaling.measurements import VACANT
from penstock.state.bucket_map import BucketMap, BucketMaps, ExecutorLocation
from penstock.state.buckets import assign_evenly

Locations = Sequence[ExecutorLocation | None]


def reassign_orphans(
    maps: BucketMaps, plan: Plan, placement: Sequence[str], leaving: Collection[str] = ()
) -> BucketMaps:
    """Give the buckets of slices without an executor to other slices, and assign new stages evenly to all executors
    that stay. No other bucket moves."""
    live = [slice_ for slice_, owner in enumerate(placement) if owner != VACANT]
    staying = [slice_ for slice_ in live if placement[slice_] not in leaving] or live
    known = frozenset(live)
    for operator in (None, *maps.operators):
        owners = maps.default if operator is None else maps.of(operator)
        orphans = [bucket for bucket, slice_ in enumerate(owners) if slice_ not in known]
        if orphans:
            assigned = {bucket: staying[n % len(staying)] for n, bucket in enumerate(orphans)}
            maps = maps.with_owners(operator, assigned)
    default = tuple(staying[at] for at in assign_evenly(maps.buckets, min(len(staying), maps.buckets)))
    if set(maps.default) == set(default):
        return maps
    own = {stage: owners for stage, owners in maps_by_stage(maps, plan).items() if owners != default}
    return replace(maps, default=default, operators=own)


@dataclass(frozen=True)
class Orphans:
    """Buckets of executors that died: the maps before that, and the maps that gave the buckets to others."""

    before: BucketMaps
    since: BucketMaps

    def is_current(self, maps: BucketMaps) -> bool:
        """Whether nothing else has moved since."""
        return (self.since.default, self.since.operators) == (maps.default, maps.operators)

    def restore(self, placement: Sequence[str]) -> BucketMaps | None:
        """The maps as they were, once all their slices have executors again."""
        used = {
            slice_ for owners in (self.before.default, *self.before.operators.values()) for slice_ in owners
        }
        all_live = all(slice_ < len(placement) and placement[slice_] != VACANT for slice_ in used)
        return self.before if all_live else None


@dataclass(frozen=True)
class Renumbering:
    """Maps without the slices that have no executor, and the former numbers of the others."""

    maps: BucketMaps
    former: tuple[int, ...]


def renumber_slices(maps: BucketMaps, placement: Sequence[str]) -> Renumbering | None:
    """The same maps with fewer slices, once most slices are vacant: each is a task of every stage, even without
    buckets. No bucket changes its executor. None if it is not worthwhile, or a vacant slice has a bucket."""
    former = tuple(slice_ for slice_, owner in enumerate(placement) if owner != VACANT)
    number = {old: new for new, old in enumerate(former)}
    everyone = (maps.default, *maps.operators.values())
    if 2 * len(former) >= len(placement) or any(not set(owners) <= number.keys() for owners in everyone):
        return None

    def renumber(owners: BucketMap) -> BucketMap:
        return tuple(number[slice_] for slice_ in owners)

    locations = tuple(maps.location_of(slice_) for slice_ in former)
    operators = {name: renumber(owners) for name, owners in maps.operators.items()}
    renumbered = replace(maps, default=renumber(maps.default), operators=operators, locations=locations)
    return Renumbering(renumbered, former)


@dataclass(frozen=True)
class RequestedChange:
    """A change that is requested: the maps after it and, where buckets move by a decision, the stages."""

    stages: tuple[str, ...]
    maps: BucketMaps
    result: Future[MigrationResult]


class MapChanges:
    """The changes of one engine's maps: `request` requests one, `maps` and `plan` are those in force."""

    def __init__(
        self,
        request: Callable[[MapChange], Future[MigrationResult]],
        maps: Callable[[], BucketMaps],
        plan: Callable[[], Plan],
    ) -> None:
        self._request, self.maps, self.plan = request, maps, plan
        self._requested: list[RequestedChange] = []
        #: buckets of executors that died, which others have until these are replaced
        self._orphans: Orphans | None = None
        #: the former numbers of the slices, while these are renumbered
        self._renumbering: tuple[tuple[int, ...], Future[MigrationResult]] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all requested changes are over; a renumbering does not count."""
        return not self._requested

    @property
    def is_renumbering(self) -> bool:
        return self._renumbering is not None

    def final_maps(self) -> BucketMaps:
        """The maps after all requested changes, for the stages that exist."""
        maps = self._requested[-1].maps if self._requested else self.maps()
        existing = {name: owners for name, owners in maps.operators.items() if name in self.plan().stages}
        return replace(maps, operators=existing)

    def request(
        self, maps: BucketMaps, protocol: Protocol | None = None, stages: tuple[str, ...] = ()
    ) -> None:
        result = self._request(MapChange(maps, protocol))
        self._requested.append(RequestedChange(stages, maps, result))

    def take_finished(self) -> list[RequestedChange]:
        """The changes that are over since the last call."""
        finished = [change for change in self._requested if change.result.done()]
        self._requested = [change for change in self._requested if change not in finished]
        return finished

    def withdraw(self) -> list[RequestedChange]:
        """Withdraw all requested changes, since each starts from the maps of the one before. A change that comes into
        force at this moment stays. Returns the withdrawn ones."""
        withdrawn = [change for change in self._requested if change.result.cancel()]
        self._requested = [change for change in self._requested if change not in withdrawn]
        return withdrawn

    def note_loss(self) -> None:
        """Remember the maps when an executor dies, so that its replacement gets its buckets back."""
        maps = self.final_maps()
        if self._orphans is None or not self._orphans.is_current(maps):
            self._orphans = Orphans(maps, maps)

    def reassign(self, placement: Sequence[str], locations: Locations, leaving: Collection[str]) -> None:
        """Give buckets without an executor to others, or back to a replacement; run slices where they are placed."""
        before = self.final_maps()
        if self._orphans is not None and not self._orphans.is_current(before):
            self._orphans = None
        restored = None if self._orphans is None else self._orphans.restore(placement)
        maps = reassign_orphans(restored or before, self.plan(), placement, leaving)
        if self._orphans is not None:
            self._orphans = None if restored else replace(self._orphans, since=maps)
        if maps != before or list(before.locations) != list(locations):
            self.request(maps.with_locations(locations), None if restored else "immediate")

    def renumber(self, placement: Sequence[str]) -> None:
        """Leave out the slices without an executor, once they are most of them."""
        renumbering = renumber_slices(self.final_maps(), placement)
        if renumbering is not None:
            result = self._request(MapChange(renumbering.maps, "immediate"))
            self._renumbering = renumbering.former, result

    def finish_renumbering(self, placement: list[str]) -> list[str] | None:
        """The placement by the numbers that slices have now; None while they are being renumbered."""
        if self._renumbering is None:
            return placement
        former, result = self._renumbering
        if not result.done():
            return None
        self._renumbering = None
        return [placement[slice_] for slice_ in former] if result.result().done else placement
