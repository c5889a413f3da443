"""The limit: Polars as a plain batch program over whole files, nothing kept for a next event.

python polars_batch.py windows INPUT OUT.json
"""

from __future__ import annotations

import os
import sys

if "--cores" in sys.argv:
    os.environ["POLARS_MAX_THREADS"] = sys.argv[sys.argv.index("--cores") + 1]

import polars as pl
from program import EARTH_KM, JOB_WINDOW, JOIN_SECONDS, LOG_FIELDS, TOP, WINDOW, Rows, Task, main
from taxi_routes import told

_CALLS = dict.fromkeys(("src", "dst"), pl.String) | dict.fromkeys(("start", "end", "district"), pl.Int64)
_CALLS |= {"lat": pl.Float64, "lon": pl.Float64, "ts": pl.Int64}


# begin patterns windows clients jobs
def clicks(task: Task) -> pl.LazyFrame:
    """The lines as columns, in order of the files."""
    read = [
        pl.scan_csv(part, separator=" ", has_header=False, schema=dict.fromkeys(LOG_FIELDS, pl.String))
        for part in task.parts
    ]
    return pl.concat(read).select(
        "host",
        pl.col("stamp").str.to_datetime("[%d/%b/%Y:%H:%M:%S").dt.epoch("s").alias("time"),
        pl.col("request").str.split(" ").list.get(1).alias("path"),
        pl.col("bytes").cast(pl.Int64, strict=False),
        pl.col("cookie").str.strip_prefix("session=").alias("session"),
    )


# end patterns windows clients jobs
# begin windows clients jobs
def window(seconds: int) -> pl.Expr:
    return (pl.col("time") // seconds * seconds).alias("window")


# end windows clients jobs
# begin patterns
def patterns(task: Task) -> Rows:
    with task.clock():
        earlier = [pl.col("path").shift(back).over("session").alias(str(back)) for back in (2, 1)]
        found = clicks(task).select(*earlier, pl.col("path").alias("0")).drop_nulls()
        pattern = pl.concat_str("2", "1", "0", separator=" > ").alias("pattern")
        counts = found.select(pattern).group_by("pattern").len("count")
        best = counts.sort("count", "pattern", descending=[True, False]).head(TOP).collect()
    return best.with_row_index("rank", offset=1).iter_rows()


# end patterns
# begin windows
def windows(task: Task) -> Rows:
    with task.clock():
        counts = clicks(task).group_by(window(WINDOW), "path").len("count")
        ordered = counts.sort("window", "count", "path", descending=[False, True, False])
        ranked = ordered.with_columns((pl.int_range(pl.len()).over("window") + 1).alias("rank"))
        best = ranked.filter(pl.col("rank") <= TOP).select("window", "rank", "path", "count").collect()
    return best.iter_rows()


# end windows
# begin clients
def clients(task: Task) -> Rows:
    with task.clock():
        told = clicks(task).group_by(window(WINDOW), "host")
        told = told.agg(pl.len(), pl.col("time").min().alias("first"), pl.col("time").max().alias("last"))
        told.sink_parquet(task.place / "clients.parquet")
    return pl.read_parquet(task.place / "clients.parquet").iter_rows()


# end clients
# begin join
def join(task: Task) -> Rows:
    with task.clock():
        read = [pl.scan_csv(part, has_header=False, schema=_CALLS) for part in task.parts]
        calls = pl.concat(read).select("src", "start", "ts", pl.col("lat", "lon").radians())
        reach = JOIN_SECONDS * 1_000_000
        near = calls.join(calls, on="src").filter(
            (pl.col("ts") - pl.col("ts_right")).abs() <= reach,
            pl.col("start") < pl.col("start_right"),
            pl.col("start_right") - pl.col("start") <= reach,
        )
        north = ((pl.col("lat_right") - pl.col("lat")) / 2).sin()
        east = ((pl.col("lon_right") - pl.col("lon")) / 2).sin()
        half = north * north + pl.col("lat").cos() * pl.col("lat_right").cos() * east * east
        km = (2 * EARTH_KM * half.sqrt().arcsin()).alias("km")
        near.select("src", "start", "start_right", km).sink_parquet(task.place / "join.parquet")
    pairs = pl.read_parquet(task.place / "join.parquet")
    task.extra["answer"] = {"km": round(pairs["km"].sum())}
    return pairs.select("src", "start", "start_right").iter_rows()


# end join
# begin taxi
def taxi(task: Task) -> Rows:
    with task.clock(), open(task.parts[0]) as lines:
        rows = told(lines)
    return rows


# end taxi
# begin jobs
def jobs(task: Task) -> Rows:
    with task.clock():
        events = clicks(task).select("time", "path", "bytes").collect().lazy()
        asked = [
            events.filter(pl.col("path") == page)
            .group_by(window(JOB_WINDOW))
            .agg(pl.len().alias("n"), pl.col("bytes").sum().alias("b"))
            for page in task.pages
        ]
        found = pl.collect_all(asked)
    return ((number, *row) for number, rows in enumerate(found) for row in rows.iter_rows())


# end jobs
WORKLOADS = {name.__name__: name for name in (patterns, windows, clients, join, taxi, jobs)}

if __name__ == "__main__":
    main("polars", WORKLOADS, ["polars"], {"threads": pl.thread_pool_size()})
