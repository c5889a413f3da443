"""Decode, complete and generate readings of smart plugs in the columns of DEBS 2014's challenge."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import polars as pl

import penstock as ps
from penstock.demos.generator import Draws, generate_log
from penstock.logs import Log, Profile

COLUMNS: dict[str, pl.DataType] = {
    "id": ps.Int64(),
    "at": ps.Datetime("us", "UTC"),
    "value": ps.Float64(),
    **dict.fromkeys(["property", "plug", "household", "house"], ps.Int64()),
}
WORK, LOAD = 0, 1
PLUG = ("house", "household", "plug")
COMPLETED: dict[str, pl.DataType] = {
    **dict.fromkeys(PLUG, ps.Int64()),
    "load": ps.Float64(),
    "made": ps.Boolean(),
}
#: seconds without a load reading after which one is computed
GAP = 60.0
#: the size of the generated log
HOUSES, PLUGS, DAYS = 10, 4, 3


def decoder() -> ps.Delimited:
    """Times are seconds since 1970."""
    return ps.Delimited(COLUMNS, times={"at": "s"})


def completion(since: list[float] | None, row: dict[str, Any], emit: Callable[[Any], None]) -> Any:
    """Emit load readings, and a computed load where the meter advanced by more than the load readings explain.

    State: a work reading, its time, the time of the last reading, and the seconds and watt seconds that load readings
    since then explain. A load reading explains the time back to the reading before it, at most `GAP`.
    """
    now, value = row["at"].timestamp(), row["value"]
    plug = {name: row[name] for name in PLUG}
    if row["property"] == LOAD:
        emit({**plug, "load": value, "made": False})
        if since is None:
            return None
        work, start, last, seconds, used = since
        span = min(now - last, GAP)
        return [work, start, now, seconds + span, used + span * value]
    if since is None:
        return [value, now, now, 0.0, 0.0]
    work, start, _, seconds, used = since
    missing, left = now - start - seconds, (value - work) * 3.6e6 - used
    if missing > GAP and left > 0:
        emit({**plug, "load": round(left / missing, 3), "made": True})
    # while loads are missing, work adds up until the time is worth a load
    return [value, now, now, 0.0, 0.0] if missing > GAP or seconds else since


def reading(draw: Draws, number: int, micros: int) -> str:
    """Each plug in turn: its load, then its work. Loads vary over the day and are missing in some half hours."""
    turn, work = divmod(number, 2)
    plug, seconds = turn % (HOUSES * PLUGS), micros / 1e6
    mean, day = 20 + 30 * Draws(plug).below(10), 2 * math.pi / 86_400
    swing = mean * 0.8
    gap = Draws(plug << 32 | micros // 1_800_000_000).below(12) == 0
    if work or gap:
        watt_seconds = mean * seconds + swing / day * (1 - math.cos(day * seconds))
        value = f"{watt_seconds / 3.6e6 - 1e4 * mean:.4f},{WORK}"
    else:
        value = f"{mean + swing * math.sin(day * seconds) + draw.below(21) - 10:.1f},{LOAD}"
    house, plug = divmod(plug, PLUGS)
    return f"{number},{micros // 1_000_000},{value},{plug % 2},{plug // 2},{house}"


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """Three days of readings, all there at once: `rate` is in the time of the readings, not of the clock."""
    each = rate or 4
    return generate_log(reading, rate=each, profile=profile, live=False, total=round(each * 86_400 * DAYS))
