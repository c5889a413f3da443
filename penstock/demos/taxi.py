"""Taxi rides (the challenge of DEBS 2015): which routes are driven most, and where does a free taxi earn most?

    penstock demo taxi                             on generated trips
    penstock demo taxi --log 'trips*.csv' --drain  on the challenge's 17 columns

The input is trips, each when it has ended. Outputs:
- `routes`: the ten most frequent routes between cells of 500 m, of trips that ended in the last 30 minutes;
- `areas`: the ten cells of 250 m with the most profit: the median of fare and tip of trips that started there and
  ended in the last 15 minutes, over the taxis that became empty there in the last 30 and have not been seen since;
- `left_out`: how many trips were left out, and why.

The first two are lines in the challenge's format, emitted when the list changes: the trip's two times, the ten best
(NULL where there are fewer), and the delay in seconds from reading the trip to emitting the line. Only the delay
depends on the clock. "The last 30 minutes" are those less than 30 minutes ago. Of equals, the one with the latest trip
comes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

import penstock as ps
from penstock import col
from penstock.demos.generator import Draws, format_time, generate_log
from penstock.demos.taxi_ranking import NO_AREAS, NO_ROUTES, best_areas, best_routes
from penstock.logs import Log, Profile

NORTH, WEST = 41.474937, -74.913585  #: the middle of cell 1.1 of the coarse grid
SOUTHWARDS, EASTWARDS = 0.004491556, 0.005986  #: 500 m in degrees
_INSTANT, _PLACES = ps.Datetime("us", "UTC"), ["pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat"]
COLUMNS: dict[str, pl.DataType] = {
    **dict.fromkeys(["medallion", "license"], ps.String()),
    **dict.fromkeys(["pickup", "dropoff"], _INSTANT),
    **dict.fromkeys(["seconds", "miles", *_PLACES], ps.Float64()),
    "paid": ps.String(),
    **dict.fromkeys(["fare", "surcharge", "tax", "tip", "tolls", "total"], ps.Float64()),
}
RANKED = {"pickup": _INSTANT, "dropoff": _INSTANT, "best": ps.String(), "read": ps.Float64()}


def cell(end: str, per_side: int) -> pl.Expr:
    """The cell where a trip's `end` is, as "east.south" from 1.1 on; null outside the grid of `per_side` cells."""
    parts = per_side // 300
    east = ((col(f"{end}_lon") - (WEST - EASTWARDS / 2)) / (EASTWARDS / parts)).floor() + 1
    south = (((NORTH + SOUTHWARDS / 2) - col(f"{end}_lat")) / (SOUTHWARDS / parts)).floor() + 1
    inside = east.is_between(1, per_side) & south.is_between(1, per_side)
    return pl.when(inside).then(pl.concat_str(east.cast(pl.Int64), south.cast(pl.Int64), separator="."))


def build(
    log: Log,
    results: str | Path = "out/taxi",
    *,
    lateness: str = "2s",
    clock: Callable[[], float] = time.time,
) -> ps.App:
    """The application over a log of trips. `clock` measures the delay."""

    def read(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(read=pl.lit(clock(), pl.Float64))

    def lines(frame: pl.DataFrame) -> pl.DataFrame:
        times = (col(name).dt.strftime("%Y-%m-%d %H:%M:%S") for name in ("pickup", "dropoff"))
        delay = (pl.lit(clock(), pl.Float64) - col("read")).abs().round(3)
        return frame.select(col("^_.*$"), line=pl.concat_str(*times, "best", delay, separator=","))

    decoder = ps.Delimited(COLUMNS, times=dict.fromkeys(["pickup", "dropoff"], "%Y-%m-%d %H:%M:%S"))
    trips = ps.stream("trips", log, decoder, time="dropoff", lateness=lateness)
    trips = trips.map(
        from_500=cell("pickup", 300),
        to_500=cell("dropoff", 300),
        from_250=cell("pickup", 600),
        to_250=cell("dropoff", 600),
        ended=col("dropoff").dt.timestamp("us"),
        read=ps.lit(0.0),
    )
    missing = pl.any_horizontal(*(col(place).fill_null(0) == 0 for place in _PLACES))
    outside = pl.any_horizontal(col("from_500").is_null(), col("to_500").is_null())
    parts = trips.demux(missing=missing, outside=outside, otherwise="good")
    left_out = parts["missing"].select(why=ps.lit("no place"))
    left_out = left_out.union(parts["outside"].select(why=ps.lit("outside the grid")))

    # the order of all trips decides: one task ranks them, all others decode and place them
    everybody = parts["good"].map_batches(read, deterministic=True).key_by()
    routes = everybody.apply_rows(best_routes, RANKED, NO_ROUTES)
    areas = everybody.apply_rows(best_areas, RANKED, NO_AREAS)
    outputs = {
        "routes": routes.map_batches(lines, {"line": ps.String}, deterministic=True),
        "areas": areas.map_batches(lines, {"line": ps.String}, deterministic=True),
        "left_out": left_out.key_by("why").running("10s").count("trips"),
    }
    return ps.app(
        "taxi", *(ps.output(name, rows, ps.jsonl(Path(results) / name)) for name, rows in outputs.items())
    )


def trip(draw: Draws, number: int, micros: int) -> str:
    """A generated trip in Manhattan that ends at this instant, often between busy places; one in 50 has no place."""
    places = [(-73.99 + draw.low(60) * 0.003, 40.73 + draw.low(60) * 0.002) for _ in range(2)]
    (lon, lat), (to_lon, to_lat) = places if draw.below(50) else [(0.0, 0.0)] * 2
    minutes, fare, tip = 1 + draw.below(25), 300 + draw.below(40) * 50, draw.below(10) * 25
    start = format_time(micros - minutes * 60_000_000, seconds=True)
    times = f"{start},{format_time(micros, seconds=True)},{minutes * 60}"
    place = f"{lon:.6f},{lat:.6f},{to_lon:.6f},{to_lat:.6f}"
    paid = f"CSH,{fare / 100:.2f},0.50,0.50,{tip / 100:.2f},0.00,{(fare + tip) / 100 + 1:.2f}"
    return f"{draw.below(5000):032X},{number:032X},{times},{minutes * 0.3:.2f},{place},{paid}"


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log."""
    return generate_log(trip, rate=rate or 500, profile=profile)


app = build(generated())
