"""The expected results, by plain batch code that shares nothing with the engines: Polars over the whole files.

Every engine must return these.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from bench.dataset import Dataset
from bench.outcome import AnswerRows

WINDOW_SECONDS = 30
TOP = 10
FIELDS = (
    "host",
    "ident",
    "user",
    "stamp",
    "zone",
    "request",
    "status",
    "bytes",
    "referer",
    "agent",
    "cookie",
)


def patterns(dataset: Dataset) -> AnswerRows:
    """The ten most frequent sequences of three pages within a session, all events seen."""
    events = _events(dataset, ("session",)).sort(
        "time", maintain_order=True
    )  # by time, server, place in file
    earlier = [pl.col("path").shift(back).over("session").alias(str(back)) for back in (2, 1)]
    found = events.select(*earlier, pl.col("path").alias("0")).drop_nulls()
    counts = found.select(pl.concat_str("2", "1", "0", separator=" > ").alias("pattern"))["pattern"]
    best = counts.value_counts(name="count").sort("count", "pattern", descending=[True, False]).head(TOP)
    return [[rank, pattern, count] for rank, (pattern, count) in enumerate(best.iter_rows(), 1)]


def windows(dataset: Dataset) -> AnswerRows:
    """The ten most visited pages of each window."""
    start = (pl.col("time").dt.epoch("s") // WINDOW_SECONDS * WINDOW_SECONDS).alias("start")
    counts = _events(dataset, ()).group_by(start, "path").agg(pl.len().alias("count"))
    ordered = counts.sort("start", "count", "path", descending=[False, True, False])
    ranked = ordered.with_columns((pl.int_range(pl.len()).over("start") + 1).alias("rank"))
    best = ranked.filter(pl.col("rank") <= TOP).select("start", "rank", "path", "count")
    return [list(row) for row in best.iter_rows()]


def _events(dataset: Dataset, further: Sequence[str]) -> pl.DataFrame:
    """All events in the order of the files, read as blank-separated values with quotes."""
    frames = [
        pl.scan_csv(path, separator=" ", has_header=False, schema=dict.fromkeys(FIELDS, pl.String))
        for path in dataset.files
    ]
    wanted = {
        "time": pl.col("stamp").str.to_datetime("[%d/%b/%Y:%H:%M:%S", time_unit="us"),
        "path": pl.col("request").str.split(" ").list.get(1),
        "session": pl.col("cookie").str.strip_prefix("session="),
    }
    columns = [wanted[name].alias(name) for name in ("time", "path", *further)]
    return pl.concat(frames).select(columns).collect()
