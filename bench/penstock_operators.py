"""The operators in Penstock: each question as a user would write it, its rows into Parquet files.

Settings are the defaults, apart from the end (stop when all is
read) and, for products, from a first epoch of a size that fits their cost; the rate control continues from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import polars as pl
from polars import col

from bench.dataset import Dataset
from bench.operator_queries import EARTH_KM, LATENESS_SECONDS, TOP, Query, answer
from bench.outcome import AnswerRows, Outcome
from bench.penstock_runs import files_of, run_to_end, start_session
from penstock.decode import call_lines
from penstock.logs.contract import Log
from penstock.operators.functions import avg, count
from penstock.query.app import app, output
from penstock.query.logical import App
from penstock.query.stream import Stream, stream
from penstock.settings import Settings
from penstock.sinks import parquet


def runs(
    queries: Sequence[Query], datasets: Sequence[Dataset], cores: int | None, place: Path
) -> list[Outcome]:
    """Each question over its data set in turn, in one session; the first ones warm it up for the later."""
    master = f"local[{cores or '*'}]"
    spark = start_session(master)
    outcomes = []
    for number, (query, dataset) in enumerate(zip(queries, datasets, strict=True)):
        folder, results = place / str(number), place / str(number) / "results"
        settings = Settings(state=folder / "state", drain=True, master=master)
        application = operator_app(query, files_of(dataset), results)
        outcomes.append(run_to_end(application, dataset, settings, spark).outcome(_summarise(query, results)))
    return outcomes


def operator_app(query: Query, log: Log, results: Path) -> App:
    """A question as an application with one output."""
    return app(query.operator, output("rows", rows(query, log), parquet(results)))


def rows(query: Query, log: Log) -> Stream:
    """Build the stream of a query's result."""
    calls = stream("calls", log, call_lines(), time="ts", lateness=f"{LATENESS_SECONDS}s")
    duration = (col("end") - col("start")).dt.total_seconds()
    size = f"{query.seconds}s"
    match query.operator:
        case "map":
            return calls.select("src", duration=duration)
        case "aggregate":
            by_district = calls.map(duration=duration).key_by("district")
            windows = by_district.window(size, every=f"{query.advance_seconds}s")
            return windows.aggregate(count(), avg("duration"))
        case "join":
            by_caller = calls.key_by("src")
            pairs = by_caller.join(by_caller, within=size, where=condition(query), how="inner")
            return pairs.select("src", "start", "start_right", km=kilometres())
        case "product":
            pairs = calls.product(calls, within=size, where=condition(query))
            return pairs.select("src", "dst", "start", "src_right", "dst_right", "start_right")
        case "order":
            by_caller = calls.key_by("src", order=query.order)
            return by_caller.window(size).count().top(TOP, changes_only=False)


def _summarise(query: Query, results: Path) -> AnswerRows:
    return answer(query, parquet(results).read())


def condition(query: Query) -> pl.Expr:
    """What must hold of a pair, apart from the caller of a join and the time between the two."""
    return _starts_near(query) if query.operator == "join" else _share_a_number() & _overlap()


def kilometres() -> pl.Expr:
    """The great-circle distance of the two calls of a pair, by the haversine."""
    lat, lat_right = col("lat").radians(), col("lat_right").radians()
    north = ((lat_right - lat) / 2).sin()
    east = ((col("lon_right").radians() - col("lon").radians()) / 2).sin()
    return 2 * EARTH_KM * (north * north + lat.cos() * lat_right.cos() * east * east).sqrt().arcsin()


def _starts_near(query: Query) -> pl.Expr:
    """The right call starts after the left one, but not by more than the window; so each pair comes once."""
    distance = col("start_right") - col("start")
    return (distance > timedelta(0)) & (distance <= timedelta(seconds=query.seconds))


def _share_a_number() -> pl.Expr:
    return (
        (col("src") == col("src_right"))
        | (col("src") == col("dst_right"))
        | (col("dst") == col("src_right"))
        | (col("dst") == col("dst_right"))
    )


def _overlap() -> pl.Expr:
    """One call starts during the other; never the same call, which starts when it starts."""
    during_left = (col("start") < col("start_right")) & (col("start_right") < col("end"))
    during_right = (col("start_right") < col("start")) & (col("start") < col("end_right"))
    return during_left | during_right
