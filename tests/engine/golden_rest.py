"""What the golden query lacks: the other windows, joins, patterns, custom operators and aggregates.

Each operator and each kind of join is in one of the two queries (`tests/spark/test_coverage.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from penstock.operators.routes import Partitioner
from penstock.testing.list_log import ListLog
from tests import golden_query as golden
from tests.golden_query import _EVENTS, _GREAT, _OTHER, _RATES, _SECOND, _USER, LATENESS, _windows
from tests.transparency import description as d
from tests.transparency import oracle, queries

_TWICE = d.Map(_GREAT, (("twice", d.Formula("constant", by=2)),))
_KEPT = (("time", "time"), ("user", "str"), ("amount", "float"))


def _pattern(contiguous: bool, timeouts: bool) -> d.Pattern:
    steps = (
        d.Step("asked", d.Compare("page", "==", "/a")),
        d.Step("told", d.Compare("amount", ">", d.Other("amount", "asked"))),
    )
    return d.Pattern(_EVENTS, _USER, steps, 3 * _SECOND, contiguous, not contiguous, timeouts, ("amount",))


class Split(ps.CustomOperator):
    """Emits amounts below zero by an output of their own."""

    def init_state(self) -> dict[str, int]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        rows = batch.select("_time", "user", "amount")
        out.emit(rows.filter(col("amount") >= 0))
        out.emit(rows.filter(col("amount") < 0), to="negative")


_AMOUNT = (("user", d.Formula("copy", "user")), ("amount", d.Formula("copy", "amount")))

DESCRIBED: dict[str, Any] = {
    "last_events": _windows(d.LastWindow(3), ("count", None, "n"), ("collect", "page", "pages")),
    "tumbling": _windows(
        d.TimeWindow(60 * _SECOND),
        ("variance", "amount", "variance"),
        ("stddev", "amount", "deviation"),
        ("quantile", "amount", "quantile"),
        ("count_of", "amount", "values"),
        ("approx_count_distinct", "page", "pages"),
    ),
    "sliding_closed": _windows(
        d.TimeWindow(30 * _SECOND, 10 * _SECOND), ("count", None, "n"), ("max", "amount", "most")
    ),
    "hopping": _windows(d.TimeWindow(4 * _SECOND, 6 * _SECOND, _SECOND), ("latest", None, "latest")),
    "totals": _windows(d.Running("change"), ("count", None, "n"), ("earliest", None, "earliest")),
    "strict": d.Windows(
        _EVENTS, _USER, d.TimeWindow(10 * _SECOND), (d.Aggregate("first", "page", "one"),), order="strict"
    ),
    "all_counted": _windows(d.CountWindow(4, partial=True), ("sum", "amount", "sum")),
    "right_joined": d.Join(_GREAT, _USER, _OTHER, _USER, 0, 5 * _SECOND, how="right"),
    "full_joined": d.Join(_GREAT, _USER, _OTHER, _USER, 2 * _SECOND, 0, how="full"),
    "strict_joined": d.Join(_GREAT, _USER, _OTHER, _USER, 5 * _SECOND, 5 * _SECOND, order="strict"),
    "strict_left_joined": d.Join(
        _GREAT, _USER, _OTHER, _USER, 2 * _SECOND, _SECOND, how="left", order="strict"
    ),
    "joined_to_last": d.Join(_GREAT, _USER, _OTHER, _USER, last=2),
    "pairs": d.SelfJoin(_GREAT, _USER, 20 * _SECOND, None),
    "pairs_of_last": d.SelfJoin(_GREAT, _USER, None, 2),
    "looked_up_inner": d.Lookup(_OTHER, _USER, _RATES, _USER, "inner", None, broadcast=True),
    "product_with_last": d.Product(_GREAT, _OTHER, None, None, last=2),
    "product_with_itself": d.Product(_GREAT, _GREAT, _SECOND, _SECOND, distinct=True),
    "contiguous": _pattern(True, False),
    "timed_out": _pattern(False, True),
    "flat": d.FlatMap(_TWICE, "twice", "turn", _KEPT),
    "rebalanced": _windows(d.TimeWindow(20 * _SECOND), ("count", None, "n"), rows=d.Rebalance(_OTHER)),
    "previous": d.Previous(_EVENTS, "user", "amount", ("str", "float")),
    "ticks": d.TickCounts(_EVENTS, "user", "str", 3 * _SECOND, merges=False),
    "ticks_added": d.TickCounts(_EVENTS, "user", "str", 3 * _SECOND, merges=True),
    "distinct_for_ever": d.Distinct(_EVENTS, ("page",), None),
    "split": d.Map(d.Filter(_EVENTS, d.Compare("amount", ">", 0)), _AMOUNT, only=True),
    "split_negative": d.Map(d.Filter(_EVENTS, d.Compare("amount", "<=", 0)), _AMOUNT, only=True),
    "united": d.Union((d.Filter(_EVENTS, d.Compare("amount", "<=", 0)), _OTHER)),
}


def build(out: Path, partition: Partitioner | None = None) -> ps.App:
    """An output for each of them."""
    events = ps.stream(
        "events", ListLog(golden.lines()), golden.decoder(), time="time", lateness=LATENESS, idle_after="5s"
    )
    lines = golden.lines(seed=8, count=60, partitions=1)
    other = ps.stream("other", ListLog(lines), golden.decoder(), time="time", lateness=60)
    streams, known = {"events": events, "other": other}, dict[Any, ps.Stream]()
    outputs = {
        name: queries.build_stream(node, streams, known, partition) for name, node in DESCRIBED.items()
    }
    schema = {"user": ps.String, "amount": ps.Float64}
    split = events.key_by("user", partition=partition).apply(Split(), schema, outputs={"negative": schema})
    outputs |= {"split": split, "split_negative": split["negative"]}
    return ps.app(
        "golden_rest", *(ps.output(name, rows, ps.jsonl(out / name)) for name, rows in outputs.items())
    )


def expected(name: str) -> tuple[list[dict[str, Any]], bool]:
    """The rows of an output by the oracle, and whether they are certain."""
    return oracle.compute_rows(DESCRIBED[name], golden.logs())
