"""Telephone calls (StreamCloud): who makes long calls, how long are calls by district, and which calls are fraud?

    penstock demo calls

The input is call records, each emitted shortly after its call. Outputs:
- `heavy`: numbers whose calls of the last hour are longer than `long_seconds` on average, every minute;
- `districts`: calls and their average duration by district in the last minute, every ten seconds;
- `too_far`: two calls of one number in a row, from places too far apart for the time between;
- `overlapping`: two calls of one number at the same time, if emitted at most `near` apart;
- `fraud`: numbers with at least two of these alarms in an hour.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

import penstock as ps
from penstock import col
from penstock.demos.distance import kilometres
from penstock.logs import Log, Profile

#: the fastest travel, and how inexact a place is
FASTEST_KMH, TOWN_KM = 900.0, 50.0


def build(
    log: Log,
    results: str | Path = "out/calls",
    *,
    lateness: str = "5s",
    long_seconds: float = 300,
    near: str = "30s",
) -> ps.App:
    """The application over a log of call records."""
    calls = ps.stream("calls", log, ps.call_lines(), time="ts", lateness=lateness)
    calls = calls.map(seconds=(col("end") - col("start")).dt.total_microseconds() / 1e6)

    hours = calls.key_by("src").window("1h", every="1m").aggregate(ps.count("calls"), ps.avg("seconds"))
    heavy = hours.filter(col("avg_seconds") > long_seconds)
    districts = (
        calls.key_by("district").window("60s", every="10s").aggregate(ps.count("calls"), ps.avg("seconds"))
    )

    in_a_row = calls.key_by("src").last(2, "start", "end", "lat", "lon")
    between = col("start").list.get(1) - col("end").list.get(0)
    places = (col(name).list.get(at) for at in (0, 1) for name in ("lat", "lon"))
    apart = in_a_row.select(
        "src",
        first=col("start").list.get(0),
        second=col("start").list.get(1),
        km=kilometres(*places),
        hours=between.dt.total_microseconds().clip(0) / 3.6e9,
    )
    too_far = apart.filter(col("km") > TOWN_KM + FASTEST_KMH * col("hours"))

    both = [col(mine) == col(theirs) for mine in ("src", "dst") for theirs in ("src_right", "dst_right")]
    at_once = (col("start_right") < col("end")) & (col("start") < col("end_right"))
    pairs = calls.select("src", "dst", "start", "end").product(
        calls.select("src", "dst", "start", "end"),
        where=pl.any_horizontal(*both) & at_once,
        within=near,
        distinct_pairs=True,
    )
    shared = pl.when(both[0] | both[1]).then(col("src")).otherwise(col("dst"))
    overlapping = pairs.select("src", "dst", "start", "src_right", "dst_right", "start_right", number=shared)

    alarms = too_far.select(number=col("src"), kind=ps.lit("too far"))
    alarms = alarms.union(overlapping.select("number", kind=ps.lit("overlapping")))
    in_hours = alarms.key_by("number").window("1h", every="10m")
    fraud = in_hours.aggregate(ps.count("alarms"), ps.count_distinct("kind", "kinds"))

    outputs = {
        "heavy": heavy,
        "districts": districts,
        "too_far": too_far,
        "overlapping": overlapping,
        "fraud": fraud.filter(col("alarms") >= 2),
    }
    return ps.app(
        "calls", *(ps.output(name, rows, ps.jsonl(Path(results) / name)) for name, rows in outputs.items())
    )


def generated(rate: float | None = None, profile: Profile = "constant") -> Log:
    """The demo's log: one call in a thousand is impossible."""
    return ps.call_records(rate=rate or 300, profile=profile, callers=20_000)


app = build(generated())
