"""The ten most frequent routes of the last half hour, one trip after the other: for every peer that runs Python.

Receives trips as lines of the challenge's format, in order; hands a row whenever the ten best change.
Of equals the route that a trip has touched last comes first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from datetime import UTC, datetime
from typing import Any

NORTH, WEST = 41.474937, -74.913585
SOUTHWARDS, EASTWARDS = 0.004491556, 0.005986
BEST, HALF_HOUR, CELLS = 10, 1800, 300


# begin taxi
def cell(lon: float, lat: float) -> str | None:
    """The cell of 500 m, None outside the grid."""
    east = int((lon - (WEST - EASTWARDS / 2)) // EASTWARDS) + 1
    south = int(((NORTH + SOUTHWARDS / 2) - lat) // SOUTHWARDS) + 1
    return f"{east}.{south}" if 1 <= east <= CELLS and 1 <= south <= CELLS else None


def trip_of(line: str) -> tuple[int, str, str, str] | None:
    """When it ended, the route and the two times of a trip; None if it has no route on the grid."""
    parts = line.split(",")
    places = [float(text) for text in parts[6:10]]
    if 0.0 in places:
        return None
    begun, ended = cell(*places[:2]), cell(*places[2:])
    if begun is None or ended is None:
        return None
    instant = datetime.fromisoformat(parts[3]).replace(tzinfo=UTC)
    return int(instant.timestamp()), f"{begun},{ended}", parts[2], parts[3]


class Routes:
    """The trips of the last half hour and the order of their routes."""

    def __init__(self) -> None:
        self.rides: deque[tuple[int, str]] = deque()
        self.entries: dict[str, tuple[int, int, str]] = {}
        self.ranking: list[tuple[int, int, str]] = []
        self.number = 0
        self.told: list[str] = []

    def took(self, trip: tuple[int, str, str, str]) -> tuple[str, str, str] | None:
        """A trip ends, others leave the half hour: its times and the ten best, if these are others now."""
        ended, route, pickup, dropoff = trip
        while self.rides and self.rides[0][0] <= ended - HALF_HOUR:
            gone = self.rides.popleft()[1]
            count, last, _ = self._away(gone)
            if count < -1:
                self._back((count + 1, last, gone))
        self.rides.append((ended, route))
        self.number += 1
        count = self._away(route)[0] if route in self.entries else 0
        self._back((count - 1, -self.number, route))
        found = [entry[2] for entry in self.ranking[:BEST]]
        if found == self.told:
            return None
        self.told = found
        return pickup, dropoff, ",".join(found + ["NULL,NULL"] * (BEST - len(found)))

    def _away(self, route: str) -> tuple[int, int, str]:
        entry = self.entries.pop(route)
        del self.ranking[bisect_left(self.ranking, entry)]
        return entry

    def _back(self, entry: tuple[int, int, str]) -> None:
        self.entries[entry[2]] = entry
        insort(self.ranking, entry)


# end taxi


def told(lines: Any) -> list[tuple[str, str, str]]:
    """All rows of some lines."""
    routes = Routes()
    found = (routes.took(trip) for trip in map(trip_of, lines) if trip is not None)
    return [row for row in found if row is not None]
