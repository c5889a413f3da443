"""Penstock: queries as in `penstock/demos/`, default settings, results as Parquet files.

python penstock_program.py windows INPUT OUT.json
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import polars as pl
from program import (
    CALL_LATENESS,
    EARTH_KM,
    JOB_WINDOW,
    JOIN_SECONDS,
    LATENCY_WINDOW,
    LATENESS,
    TOP,
    WINDOW,
    Rows,
    Task,
    main,
)

import penstock as ps
from bench.outcome import EpochClock
from bench.penstock_runs import start_session
from penstock import col
from penstock.catalogue.program import Program
from penstock.demos import taxi as taxi_app
from penstock.demos.taxi_ranking import NO_ROUTES, best_routes
from penstock.engine.engine import Engine
from penstock.settings import Settings


def run(task: Task, told: Any, each: Any = None, **further: Any) -> None:
    """Run an application or a program of jobs until all is read, by a clock that begins when the workers have loaded
    what they need.

    PEER_MASTER=inline runs the same tasks in this process without Spark: for tests.
    """
    master = os.environ.get("PEER_MASTER", f"local[{task.cores}]")
    settings = Settings(state=task.place / "state", drain=not task.live_seconds, master=master, **further)
    spark = None if master == "inline" else start_session(master)
    clock = EpochClock()

    def watch(report: Any) -> None:
        clock.watch(report)
        if each is not None:
            each(report)

    with task.clock():
        done = Engine(told, settings, spark).run(
            watch, for_seconds=task.live_seconds or None, on_phase=clock.on_phase
        )
    if not task.live_seconds and (done.events, done.late, done.bad) != (task.facts["events"], 0, 0):
        raise SystemExit(
            f"took {done.events} of {task.facts['events']} events, {done.late} late, {done.bad} bad"
        )
    if spark is not None:
        task.seconds, task.extra["epochs"] = clock.seconds, clock.epochs


def written(task: Task, rows: ps.Stream) -> pl.DataFrame:
    """The rows of a query, once it has read all."""
    sink = ps.parquet(task.place / "rows")
    run(task, ps.app(task.workload, ps.output("rows", rows, sink)))
    return sink.read()


def seconds(name: str) -> pl.Expr:
    return col(name).dt.epoch("s")


# begin patterns windows clients jobs
def clicks(task: Task) -> ps.Stream:
    log = ps.files(f"{task.input}/parts/*.log", finished=not task.live_seconds)
    decoder = ps.combined_log(extra=[ps.Cookie("session")])
    return ps.stream("clicks", log, decoder, time="time", lateness=f"{LATENESS}s")


# end patterns windows clients jobs
# begin patterns
def patterns(task: Task) -> Rows:
    walks = clicks(task).key_by("session").last(3, "path").map(pattern=col("path").list.join(" > "))
    rows = written(task, walks.key_by("pattern").running(f"{WINDOW}s").count().top(TOP))
    # end patterns
    last = rows.filter(col("as_of") == col("as_of").max())
    return last.select("rank", "pattern", "count").iter_rows()


# begin windows
def windows(task: Task) -> Rows:
    counts = clicks(task).key_by("path").window(f"{WINDOW}s").count()
    rows = written(task, counts.top(TOP, changes_only=False))
    # end windows
    return rows.select(seconds("window_start"), "rank", "path", "count").iter_rows()


# begin clients
def clients(task: Task) -> Rows:
    fixed = clicks(task).key_by("host").window(f"{WINDOW}s")
    rows = written(task, fixed.aggregate(ps.count("visits"), ps.earliest("first"), ps.latest("last")))
    # end clients
    told = rows.select(seconds("window_start"), "host", "visits", seconds("first"), seconds("last"))
    return told.iter_rows()


# begin join
def join(task: Task) -> Rows:
    log = ps.files(f"{task.input}/parts/*.log", finished=True)
    calls = ps.stream("calls", log, ps.call_lines(), time="ts", lateness=f"{CALL_LATENESS}s").key_by("src")
    distance = col("start_right") - col("start")
    near = (distance > timedelta(0)) & (distance <= timedelta(seconds=JOIN_SECONDS))
    lat, lat_right = col("lat").radians(), col("lat_right").radians()
    north = ((lat_right - lat) / 2).sin()
    east = ((col("lon_right").radians() - col("lon").radians()) / 2).sin()
    km = 2 * EARTH_KM * (north * north + lat.cos() * lat_right.cos() * east * east).sqrt().arcsin()
    pairs = calls.join(calls, within=f"{JOIN_SECONDS}s", where=near, how="inner")
    rows = written(task, pairs.select("src", "start", "start_right", km=km))
    # end join
    task.extra["answer"] = {"km": round(rows["km"].sum())}
    return rows.select("src", col("start", "start_right").dt.epoch("us")).iter_rows()


# begin taxi
def taxi(task: Task) -> Rows:
    log = ps.files(f"{task.input}/parts/*.log", finished=True)
    decoder = ps.Delimited(taxi_app.COLUMNS, times=dict.fromkeys(["pickup", "dropoff"], "%Y-%m-%d %H:%M:%S"))
    trips = ps.stream("trips", log, decoder, time="dropoff", lateness=f"{LATENESS}s").map(
        from_500=taxi_app.cell("pickup", 300),
        to_500=taxi_app.cell("dropoff", 300),
        ended=col("dropoff").dt.timestamp("us"),
        read=ps.lit(0.0),
    )
    places = [col(f"{end}_{way}") for end in ("pickup", "dropoff") for way in ("lon", "lat")]
    good = [place != 0 for place in places] + [col("from_500").is_not_null(), col("to_500").is_not_null()]
    routes = (
        trips.filter(pl.all_horizontal(*good)).key_by().apply_rows(best_routes, taxi_app.RANKED, NO_ROUTES)
    )
    rows = written(task, routes)
    # end taxi
    times = (col(name).dt.strftime("%Y-%m-%d %H:%M:%S") for name in ("pickup", "dropoff"))
    return rows.select(*times, "best").iter_rows()


# begin jobs
def jobs(task: Task) -> Rows:
    script = ";\n".join(
        f"CREATE JOB job_{number} AS SELECT window_start, path, COUNT(*) AS n, SUM(bytes) AS b FROM clicks "
        f"WHERE path == '{page}' GROUP BY path WINDOWING {JOB_WINDOW} SECONDS"
        for number, page in enumerate(task.pages)
    )
    program = Program("bench", task.place / "state", streams={"clicks": clicks(task)}, begin=script)
    # end jobs
    found: list[tuple[Any, ...]] = []

    def each(report: Any) -> None:
        for name, rows in report.rows.items():
            told = rows.select(seconds("window_start"), "n", col("b").fill_null(0))
            found.extend((int(name.removeprefix("job_")), *row) for row in told.iter_rows())

    run(task, program, each, epoch_seconds=1.5, catch_up_seconds=1.5, first_epoch_units=2_000_000)
    return found


# begin latency
def latency(task: Task) -> Rows:
    counts = clicks(task).key_by("path").window(f"{LATENCY_WINDOW}s").count()
    told = ps.app(
        "latency", ps.output("rows", counts.top(TOP, changes_only=False), ps.parquet(task.place / "rows"))
    )
    # end latency
    arrived: dict[int, float] = {}

    def each(report: Any) -> None:
        now = time.time()
        for rows in report.rows.values():
            for start in rows.select(seconds("window_start"))["window_start"].unique().to_list():
                arrived.setdefault(start, now)

    run(task, told, each)
    task.seconds = task.live_seconds
    return sorted(arrived.items())


WORKLOADS = {name.__name__: name for name in (patterns, windows, clients, join, taxi, jobs, latency)}
SETTINGS = {"all": "defaults", "jobs": "epochs of 1.5 s, also while behind, the first of 2 MB"}

if __name__ == "__main__":
    main("penstock", WORKLOADS, ["pyspark", "polars"], SETTINGS)
