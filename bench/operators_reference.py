"""The expected results of the operator benchmark, by plain batch code that shares nothing with the engines.

Also how many pairs a product has to compare.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from bench.dataset import Dataset
from bench.operator_queries import EARTH_KM, TOP, Query
from penstock.logs.calls import COLUMNS

_SECOND = 1_000_000
_TEXTS = {"src": pl.String, "dst": pl.String, "lat": pl.Float64, "lon": pl.Float64}


def rows(query: Query, dataset: Dataset) -> pl.DataFrame:
    """Return the result of a query; times are microseconds since 1970."""
    calls = _calls(dataset)
    match query.operator:
        case "map":
            return calls.select("src", _duration()).collect()
        case "aggregate":
            return _aggregate(calls, query)
        case "join":
            return _join(calls, query)
        case "product":
            return _product(calls, query)
        case "order":
            return _heaviest(calls, query)


def comparisons(dataset: Dataset, seconds: int) -> int:
    """The pairs of calls emitted within so many seconds of each other: what a product has to look at."""
    times = np.sort(_calls(dataset).select("ts").collect()["ts"].to_numpy())
    reach = seconds * _SECOND
    behind = np.searchsorted(times, times + reach, side="right")
    return int((behind - np.searchsorted(times, times - reach, side="left")).sum())


def _calls(dataset: Dataset) -> pl.LazyFrame:
    schema = {name: _TEXTS.get(name, pl.Int64) for name in COLUMNS}
    return pl.concat([pl.scan_csv(path, has_header=False, schema=schema) for path in dataset.files])


def _duration() -> pl.Expr:
    return ((pl.col("end") - pl.col("start")) // _SECOND).alias("duration")


def _aggregate(calls: pl.LazyFrame, query: Query) -> pl.DataFrame:
    """Sums by stretches of the advance; a stretch is in as many windows as the query says."""
    advance = query.advance_seconds * _SECOND
    stretch = (pl.col("ts") // advance).alias("stretch")
    parts = calls.group_by(stretch, "district").agg(
        pl.len().alias("count"), _duration().sum().alias("seconds")
    )
    earlier = pl.LazyFrame({"earlier": range(query.windows)})
    start = ((pl.col("stretch") - pl.col("earlier")) * advance).alias("window_start")
    windows = (
        parts.join(earlier, how="cross").group_by(start, "district").agg(pl.col("count", "seconds").sum())
    )
    mean = (pl.col("seconds") / pl.col("count")).alias("avg_duration")
    return windows.select("window_start", "district", "count", mean).collect()


def _join(calls: pl.LazyFrame, query: Query) -> pl.DataFrame:
    """All pairs of a caller's calls, then those that are near enough; the distance by way of the chord."""
    reach = query.seconds * _SECOND
    here = calls.select("src", "start", "ts", *_in_space())
    near = here.join(here, on="src").filter(
        (pl.col("ts") - pl.col("ts_right")).abs() <= reach,
        pl.col("start") < pl.col("start_right"),
        pl.col("start_right") - pl.col("start") <= reach,
    )
    across = sum(((pl.col(axis) - pl.col(f"{axis}_right")) ** 2 for axis in "xyz"), pl.lit(0.0))
    km = (2 * EARTH_KM * (across.sqrt() / 2).arcsin()).alias("km")
    return near.select("src", "start", "start_right", km).collect()


def _in_space() -> list[pl.Expr]:
    """A place as a point of the unit sphere."""
    lat, lon = pl.col("lat").radians(), pl.col("lon").radians()
    points = {"x": lat.cos() * lon.cos(), "y": lat.cos() * lon.sin(), "z": lat.sin()}
    return [point.alias(axis) for axis, point in points.items()]


def _product(calls: pl.LazyFrame, query: Query) -> pl.DataFrame:
    """By way of the numbers: each call once under its source and once under its destination."""
    here = calls.with_row_index("call")
    numbers = [here.with_columns(pl.col(side).alias("number")) for side in ("src", "dst")]
    either = pl.concat(numbers)
    earlier, later = pl.col("start") < pl.col("start_right"), pl.col("start_right") < pl.col("start")
    pairs = either.join(either, on="number").filter(
        (pl.col("ts") - pl.col("ts_right")).abs() <= query.seconds * _SECOND,
        (earlier & (pl.col("start_right") < pl.col("end")))
        | (later & (pl.col("start") < pl.col("end_right"))),
    )
    once = pairs.unique(["call", "call_right"])
    return once.select("src", "dst", "start", "src_right", "dst_right", "start_right").collect()


def _heaviest(calls: pl.LazyFrame, query: Query) -> pl.DataFrame:
    """The callers with the most calls of each window, equal ones by their number."""
    size = query.seconds * _SECOND
    counts = calls.group_by((pl.col("ts") // size * size).alias("window_start"), "src").agg(
        pl.len().alias("count")
    )
    ordered = counts.sort("window_start", "count", "src", descending=[False, True, False])
    ranked = ordered.with_columns((pl.int_range(pl.len()).over("window_start") + 1).alias("rank"))
    return ranked.filter(pl.col("rank") <= TOP).collect()
