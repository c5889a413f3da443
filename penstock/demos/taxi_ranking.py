"""The two rankings of the taxi challenge: each reads trip after trip and emits the ten best when they change.

State: the trips of the window, oldest first; one entry per route or area; all entries in the order of the ranking; the
last list emitted (`told`). An entry starts with its rank value, negated, and the negated number of its latest trip.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

BEST = 10
_MINUTE = 60_000_000

#: the states before the first trip
NO_ROUTES: dict[str, Any] = {"rides": deque(), "entries": {}, "ranking": [], "number": 0, "told": []}
NO_AREAS: dict[str, Any] = NO_ROUTES | {
    "paid": deque(),
    "fares": {},
    "empty": deque(),
    "taxis": {},
    "free": {},
    "last": {},
}


def move_entry(ranking: list[Any], before: list[Any] | None, after: list[Any] | None) -> None:
    """Move an entry to its new position in a ranking, best first."""
    if before is not None:
        del ranking[bisect_left(ranking, before)]
    if after is not None:
        insort(ranking, after)


def best_routes(state: dict[str, Any], trip: dict[str, Any], emit: Callable[[Any], None]) -> dict[str, Any]:
    """Add a trip and remove expired ones. A route's entry: minus its trips, minus its last trip's number, the route."""
    entries, ranking = state["entries"], state["ranking"]
    rides: deque[tuple[int, str]] = state["rides"]
    now, route = trip["ended"], f"{trip['from_500']},{trip['to_500']}"
    while rides and rides[0][0] <= now - 30 * _MINUTE:
        gone = rides.popleft()[1]
        count, last, _ = before = entries.pop(gone)
        after = [count + 1, last, gone] if count < -1 else None
        move_entry(ranking, before, after)
        if after:
            entries[gone] = after
    rides.append((now, route))
    state["number"] += 1
    before = entries.get(route)
    entries[route] = [before[0] - 1 if before else -1, -state["number"], route]
    move_entry(ranking, before, entries[route])
    best = [entry[2] for entry in ranking[:BEST]]
    if best != state["told"]:
        state["told"] = best
        emit(trip | {"best": ",".join(best + ["NULL,NULL"] * (BEST - len(best)))})
    return state


def best_areas(state: dict[str, Any], trip: dict[str, Any], emit: Callable[[Any], None]) -> dict[str, Any]:
    """A trip adds a fare where it started and an empty taxi where it ended; both expire."""
    fares, taxis, ranking = state["fares"], state["taxis"], state["ranking"]
    now, taxi = trip["ended"], trip["medallion"]
    start, ended, earned = trip["from_250"], trip["to_250"], trip["fare"] + trip["tip"]
    touched = {start, ended}
    while state["paid"] and state["paid"][0][0] <= now - 15 * _MINUTE:
        _, area, gone = state["paid"].popleft()
        del fares[area][bisect_left(fares[area], gone)]
        touched.add(area)
    state["paid"].append((now, start, earned))
    insort(fares.setdefault(start, []), earned)
    while state["empty"] and state["empty"][0][0] <= now - 30 * _MINUTE:
        then, area, gone = state["empty"].popleft()
        if taxis.get(gone) == [then, area]:  # else it has driven on
            del taxis[gone]
            state["free"][area] -= 1
            touched.add(area)
    if (before := taxis.get(taxi)) is not None:
        state["free"][before[1]] -= 1
        touched.add(before[1])
    taxis[taxi] = [now, ended]
    state["empty"].append((now, ended, taxi))
    state["free"][ended] = state["free"].get(ended, 0) + 1
    state["number"] += 1
    for area in (start, ended):
        state["last"][area] = state["number"]
    for area in touched:
        there, free = fares.get(area), state["free"].get(area, 0)
        middle = median(there) if there else 0.0
        entry = [-middle / free, -state["last"][area], area, free, middle] if there and free else None
        move_entry(ranking, state["entries"].pop(area, None), entry)
        if entry:
            state["entries"][area] = entry
        if not there and not free:
            for of_area in (fares, state["free"], state["last"]):
                of_area.pop(area, None)
    best = [entry[2] for entry in ranking[:BEST]]
    if best != state["told"]:
        state["told"] = best
        lines = [f"{area},{free},{mid:.2f},{-profit:.2f}" for profit, _, area, free, mid in ranking[:BEST]]
        emit(trip | {"best": ",".join(lines + ["NULL,NULL,NULL,NULL"] * (BEST - len(best)))})
    return state
