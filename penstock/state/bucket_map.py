"""Bucket maps: which slice works on which bucket of which operator, and on which executor a slice should run. Pure.

Receives wishes (evenly, this bucket to that slice, these places); hands maps that are checked.

What an operator answers never depends on its map: any task can read any run. A map decides who does the work and whose
cache holds the runs. Maps change between epochs only; each has a version, which the epoch record names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import UserError
from penstock.state.buckets import spread

#: the slice of every bucket
BucketMap = tuple[int, ...]


@dataclass(frozen=True, order=True)
class Place:
    """An executor: the host it is on, as Spark names it, and its number."""

    host: str
    executor: str

    def __str__(self) -> str:
        return f"executor {self.executor} on {self.host}"


@dataclass(frozen=True)
class Maps:
    """The map of every operator: its own, or else the `default` one. `places` says where slices should run, by number;
    None, or no place at all: anywhere."""

    default: BucketMap
    operators: Mapping[str, BucketMap] = field(default_factory=dict)
    places: tuple[Place | None, ...] = ()
    version: int = 0

    @property
    def buckets(self) -> int:
        return len(self.default)

    @property
    def slices(self) -> int:
        """How many slices there are; some may have no bucket of an operator, or of any."""
        return 1 + max(max(owners) for owners in (self.default, *self.operators.values()))

    def of(self, operator: str) -> BucketMap:
        """The map of an operator."""
        return self.operators.get(operator, self.default)

    def place_of(self, slice_: int) -> Place | None:
        """Where a slice should run."""
        return self.places[slice_] if slice_ < len(self.places) else None

    def same_as(self, other: Maps) -> bool:
        """Whether they say the same, whatever their versions."""
        return replace(self, version=0) == replace(other, version=0)

    def moved(self, operator: str | None, owners: Mapping[int, int]) -> Maps:
        """With some buckets of an operator (None: of all that have no map of their own) given to other slices."""
        owners_now = list(self.default if operator is None else self.of(operator))
        for bucket, slice_ in owners.items():
            owners_now[bucket] = slice_
        if operator is None:
            return replace(self, default=tuple(owners_now))
        return replace(self, operators={**self.operators, operator: tuple(owners_now)})

    def placed(self, places: Sequence[Place | None]) -> Maps:
        """With its slices at these places."""
        return replace(self, places=tuple(places))

    def checked(self, buckets: int) -> Maps:
        """The same, if it can be had with this many buckets."""
        for name, owners in {"every operator": self.default, **self.operators}.items():
            if len(owners) != buckets or any(not 0 <= owner < 1 << 15 for owner in owners):
                raise UserError(
                    "BAD_BUCKET_MAP",
                    f"the bucket map of {name} has {len(owners)} entries for {buckets} buckets"
                    if len(owners) != buckets
                    else f"the bucket map of {name} names a slice that cannot be had",
                    hint="A map says the slice, from 0 on, of every bucket; make it from the maps in force.",
                )
        return self

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "default": list(self.default),
            "operators": {name: list(owners) for name, owners in sorted(self.operators.items())},
            "places": [None if place is None else [place.host, place.executor] for place in self.places],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Maps:
        return Maps(
            tuple(data["default"]),
            {name: tuple(owners) for name, owners in data["operators"].items()},
            tuple(None if place is None else Place(*place) for place in data["places"]),
            data["version"],
        )


def evenly(buckets: int, slices: int, places: Sequence[Place | None] = ()) -> Maps:
    """All operators' buckets dealt out evenly, neighbours together."""
    return Maps(spread(buckets, min(slices, buckets)), places=tuple(places))
