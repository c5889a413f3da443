"""The queries of the operator benchmark, and the form in which their results are compared.

A result is compared by a short summary that does not depend on the order of its rows.

The queries are those of the StreamCloud experiments, with two things made explicit. Windows go by the time of
emission, as there; the starts of two joined calls must be as near as well. Of two calls that overlap, one starts
during the other, whichever it is: the printed condition repeats a name where it must have meant the other call.

Rows, by operator (times in microseconds):

- map: src, duration
- aggregate: window_start, district, count, avg_duration
- join: src, start, start_right, km
- product: src, dst, start, src_right, dst_right, start_right
- order: window_start, rank, src, count
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from bench.call_data import CLOSING_CALLER
from bench.outcome import AnswerRows

Operator = Literal["map", "aggregate", "join", "product", "order"]
Order = Literal["none", "epoch", "strict"]

TOP = 10
LATENESS_SECONDS = 5
#: the mean radius of the earth
EARTH_KM = 6371.0
_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_PRIME = 2**31 - 1


@dataclass(frozen=True)
class Query:
    """A question. `seconds` is the window: its size, or how far apart two calls may be emitted.

    `windows`: in how many windows of the aggregate a call is; `order`: in which order a key's calls are counted.
    """

    operator: Operator
    seconds: int = 60
    windows: int = 6
    order: Order = "epoch"

    @property
    def advance_seconds(self) -> int:
        """From the start of one window of the aggregate to the start of the next."""
        return self.seconds // self.windows


def answer(query: Query, rows: pl.DataFrame) -> AnswerRows:
    """The rows in short: how many there are, a sum that depends on all their values, and figures to look at."""
    times = [name for name in ("window_start", "start", "start_right") if name in rows.columns]
    rows = rows.with_columns(pl.col(times).to_physical().cast(pl.Int64))
    numbers = [name for name in ("src", "dst", "src_right", "dst_right") if name in rows.columns]
    if query.operator == "order":
        best = rows.sort("window_start", "rank").with_columns(pl.col("window_start") // _SECOND)
        return [list(row) for row in best.select("window_start", "rank", "src", "count").iter_rows()]
    rows = rows.with_columns(pl.col(numbers).cast(pl.Int64))
    match query.operator:
        case "map":
            rows = rows.filter(pl.col("src") != int(CLOSING_CALLER))
            when, mixed, figure = pl.lit(0), _mix_columns("src", "duration"), pl.col("duration").sum()
        case "aggregate":
            thousandths = (pl.col("avg_duration") * 1000).round().cast(pl.Int64).alias("thousandths")
            rows = rows.with_columns(thousandths)
            mixed = _mix_columns("district", "count", "thousandths")
            when, figure = pl.col("window_start") // _SECOND, pl.col("count").sum()
        case "join":
            mixed, figure = (
                _mix_columns("src", "start", "start_right"),
                pl.col("km").sum().round().cast(pl.Int64),
            )
            when = pl.col("start") // _MINUTE * 60
        case "product":
            mixed = _mix_columns("src", "dst", "start", "src_right", "dst_right", "start_right")
            when, figure = pl.col("start") // _MINUTE * 60, pl.lit(0)
    summary = rows.group_by(when.alias("when")).agg(
        pl.len().alias("rows"), mixed.sum().alias("sum"), figure.alias("figure")
    )
    return [list(row) for row in summary.sort("when").iter_rows()]


def _mix_columns(*columns: str) -> pl.Expr:
    """One number from several, different when one of them is."""
    number = pl.lit(0, pl.Int64)
    for column in columns:
        number = (number * 1_000_003 + pl.col(column).cast(pl.Int64) % _PRIME) % _PRIME
    return number
