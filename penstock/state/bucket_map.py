"""Bucket maps: which slice processes which bucket of which operator, and on which executor a slice should run. Pure.

The result of an operator never depends on its map: any task can read any run. A map decides who does the work and
whose cache has the runs. Maps change between epochs only; each has a version, which the epoch record names.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import UserError
from penstock.state.buckets import assign_evenly

#: the slice of every bucket
BucketMap = tuple[int, ...]


@dataclass(frozen=True, order=True)
class ExecutorLocation:
    """An executor: its host, as Spark names it, and its id."""

    host: str
    executor: str

    def __str__(self) -> str:
        return f"executor {self.executor} on {self.host}"


@dataclass(frozen=True)
class BucketMaps:
    """The map of every operator: its own, or else the `default` one. `locations` has the executor that each slice
    should run on; None, or no entry: any."""

    default: BucketMap
    operators: Mapping[str, BucketMap] = field(default_factory=dict)
    locations: tuple[ExecutorLocation | None, ...] = ()
    version: int = 0

    @property
    def buckets(self) -> int:
        return len(self.default)

    @property
    def slices(self) -> int:
        """The number of slices; some may have no bucket of an operator, or of any."""
        return 1 + max(max(owners) for owners in (self.default, *self.operators.values()))

    def of(self, operator: str) -> BucketMap:
        """The map of an operator."""
        return self.operators.get(operator, self.default)

    def location_of(self, slice_: int) -> ExecutorLocation | None:
        """The executor that a slice should run on."""
        return self.locations[slice_] if slice_ < len(self.locations) else None

    def same_as(self, other: BucketMaps) -> bool:
        """Whether both are equal but for their versions."""
        return replace(self, version=0) == replace(other, version=0)

    def with_owners(self, operator: str | None, owners: Mapping[int, int]) -> BucketMaps:
        """Assign some buckets of an operator (None: of all that have no map of their own) to other slices."""
        owners_now = list(self.default if operator is None else self.of(operator))
        for bucket, slice_ in owners.items():
            owners_now[bucket] = slice_
        if operator is None:
            return replace(self, default=tuple(owners_now))
        return replace(self, operators={**self.operators, operator: tuple(owners_now)})

    def with_locations(self, locations: Sequence[ExecutorLocation | None]) -> BucketMaps:
        """Run the slices on these executors."""
        return replace(self, locations=tuple(locations))

    def check(self, buckets: int) -> BucketMaps:
        """Return the maps if they are valid for this many buckets; raise BAD_BUCKET_MAP otherwise."""
        for name, owners in {"every operator": self.default, **self.operators}.items():
            if len(owners) != buckets or any(not 0 <= owner < 1 << 15 for owner in owners):
                raise UserError(
                    "BAD_BUCKET_MAP",
                    f"the bucket map of {name} has {len(owners)} entries for {buckets} buckets"
                    if len(owners) != buckets
                    else f"the bucket map of {name} names a slice that is out of range",
                    hint="A map has the number of a slice, from 0, for each bucket; derive it from the maps in use.",
                )
        return self

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "default": list(self.default),
            "operators": {name: list(owners) for name, owners in sorted(self.operators.items())},
            "places": [None if place is None else [place.host, place.executor] for place in self.locations],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BucketMaps:
        return BucketMaps(
            tuple(data["default"]),
            {name: tuple(owners) for name, owners in data["operators"].items()},
            tuple(None if place is None else ExecutorLocation(*place) for place in data["places"]),
            data["version"],
        )


def even_maps(buckets: int, slices: int, locations: Sequence[ExecutorLocation | None] = ()) -> BucketMaps:
    """The maps that assign the buckets of all operators evenly, adjacent ones together."""
    return BucketMaps(assign_evenly(buckets, min(slices, buckets)), locations=tuple(locations))


@functools.lru_cache(maxsize=1024)
def slice_buckets(owners: BucketMap, slice_: int) -> frozenset[int]:
    """The buckets of a slice."""
    return frozenset(bucket for bucket, owner in enumerate(owners) if owner == slice_)
