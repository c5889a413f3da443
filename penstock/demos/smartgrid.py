"""Smart plugs (the challenge of DEBS 2014): which loads will follow, and which houses use more than others?

    penstock demo smartgrid

The input is readings of plugs, of load (watts) and of work (kilowatt hours so far), with gaps. Outputs:
- `completed`: loads computed from the work readings where load readings are missing;
- `plugs` and `houses`: the load predicted for the window after the next, for windows of 1, 5, 15, 60 and 120 minutes:
  the mean of the average now and of the median of the averages at that time of day on the days before;
- `outliers`: by house the share of plugs whose median load is above that of all plugs, in the last hour and the last
  day, emitted when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from penstock.demos import plug_readings
from penstock.demos.plug_readings import COMPLETED, PLUG
from penstock.logs import Log

MINUTES = (1, 5, 15, 60, 120)
#: the windows of outliers, and how often they slide
OUTLIERS = (("1h", "5m"), ("24h", "1h"))
#: days from which a usual load is computed
DAYS = 30

generated = plug_readings.generated


def predict_loads(loads: ps.Stream, minutes: int) -> ps.Stream:
    """For every plug, at the end of a window, the load predicted for the window after the next."""
    number, a_day = col("window_start").dt.timestamp("us") // (minutes * 60_000_000), 1440 // minutes
    now = loads.key_by(*PLUG).window(f"{minutes}m").aggregate(ps.avg("load", "now"))
    of_days = now.map(slot=number % a_day).key_by(*PLUG, "slot").last_window(DAYS)
    usual = of_days.aggregate(ps.median("now", "usual")).select(*PLUG, "slot", "usual")
    then = now.map(slot=(number + 2) % a_day).key_by(*PLUG, "slot").lookup(usual.key_by(*PLUG, "slot"))
    return then.select(
        *PLUG,
        minutes=ps.lit(minutes, ps.Int64),
        start=col("window_end") + pl.duration(minutes=minutes),
        load=(col("now") + col("usual").fill_null(col("now"))) / 2,
    )


def sum_houses(plugs: ps.Stream, minutes: int) -> ps.Stream:
    """The sums of the plugs' predictions by house. All predictions of a window have the time of its end."""
    sums = plugs.key_by("house", "minutes", "start").window(f"{minutes}m").sum("load", "load")
    return sums.select("house", "minutes", "start", "load")


def find_median(pairs: list[list[float]]) -> float:
    """The median of values with counts."""
    pairs = sorted(pairs)
    sums = list(accumulate(count for _, count in pairs))
    low, high = (next(i for i, n in enumerate(sums) if n > at) for at in ((sums[-1] - 1) // 2, sums[-1] // 2))
    return (pairs[low][0] + pairs[high][0]) / 2


weighted_median = ps.aggregate_function(
    "weighted_median",
    add=lambda pairs: [list(pair.values()) for pair in pairs.to_list()],
    merge=lambda one, other: one + other,
    result=find_median,
    dtype=ps.Float64,
)


def changed(before: float | None, row: dict[str, Any], emit: Callable[[Any], None]) -> Any:
    """Emit a share that differs from the one before."""
    if row["share"] != before:
        emit(row)
    return row["share"]


def find_outliers(loads: ps.Stream, size: str, every: str) -> ps.Stream:
    """By house, the share of plugs above the median of all. Loads are counted by value in parallel; only the counts
    meet in one bucket for their median."""
    of_plugs = loads.key_by(*PLUG).window(size, every=every).aggregate(ps.median("load", "median"))
    counts = loads.key_by("load").window(size, every=every).count().select(pair=pl.struct("load", "count"))
    of_all = counts.window(every).aggregate(weighted_median("pair", "of_all")).select("of_all", all=ps.lit(0))
    both = of_plugs.map(all=ps.lit(0)).key_by("all").lookup(of_all.key_by("all"), broadcast=True)
    above = both.map(above=(col("median") > col("of_all")).cast(ps.Int64)).select("house", "above")
    shares = above.key_by("house").window(every).aggregate(ps.avg("above", "share"))
    schema = {"house": ps.Int64(), "window_end": ps.Datetime("us", "UTC"), "share": ps.Float64()}
    return shares.key_by("house").apply_rows(changed, schema).map(window=ps.lit(size))


def union_all(parts: Sequence[ps.Stream]) -> ps.Stream:
    return reduce(lambda one, other: one.union(other), parts)


def build(log: Log, results: str | Path = "out/smartgrid", *, lateness: str = "2m") -> ps.App:
    """The application over a log of readings."""
    readings = ps.stream("readings", log, plug_readings.decoder(), time="at", lateness=lateness)
    loads = readings.key_by(*PLUG).apply_rows(plug_readings.completion, COMPLETED)
    soon = {minutes: predict_loads(loads, minutes) for minutes in MINUTES}
    outputs = {
        "completed": loads.filter(col("made")).select(*PLUG, "load"),
        "plugs": union_all(list(soon.values())),
        "houses": union_all([sum_houses(plugs, minutes) for minutes, plugs in soon.items()]),
        "outliers": union_all([find_outliers(loads, size, every) for size, every in OUTLIERS]),
    }
    return ps.app(
        "smartgrid",
        *(ps.output(name, rows, ps.jsonl(Path(results) / name)) for name, rows in outputs.items()),
    )


app = build(generated())
