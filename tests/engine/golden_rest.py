"""What the golden query lacks: the other windows, joins, patterns, custom operators and aggregates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import penstock as ps
from penstock.operators.routing import Partitioner
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


DESCRIBED: dict[str, Any] = {
    "last_events": _windows(d.LastEvents(3), ("count", None, "n"), ("collect", "page", "pages")),
    "tumbling": _windows(
        d.InTime(60 * _SECOND),
        ("variance", "amount", "variance"),
        ("stddev", "amount", "deviation"),
        ("quantile", "amount", "quantile"),
        ("count_of", "amount", "values"),
        ("approx_count_distinct", "page", "pages"),
    ),
    "hopping": _windows(d.InTime(4 * _SECOND, 6 * _SECOND, _SECOND), ("latest", None, "latest")),
    "totals": _windows(d.Running("change"), ("count", None, "n"), ("earliest", None, "earliest")),
    "strict": d.Windows(
        _EVENTS, _USER, d.InTime(10 * _SECOND), (d.Aggregate("first", "page", "one"),), order="strict"
    ),
    "all_counted": _windows(d.ByCount(4, partial=True), ("sum", "amount", "sum")),
    "right_joined": d.Join(_GREAT, _USER, _OTHER, _USER, 0, 5 * _SECOND, how="right"),
    "full_joined": d.Join(_GREAT, _USER, _OTHER, _USER, 2 * _SECOND, 0, how="full"),
    "joined_to_last": d.Join(_GREAT, _USER, _OTHER, _USER, last=2),
    "pairs": d.Pairs(_GREAT, _USER, 20 * _SECOND, None),
    "pairs_of_last": d.Pairs(_GREAT, _USER, None, 2),
    "looked_up_inner": d.Lookup(_OTHER, _USER, _RATES, _USER, "inner", None, broadcast=True),
    "product_with_last": d.Product(_GREAT, _OTHER, None, None, last=2),
    "product_with_itself": d.Product(_GREAT, _GREAT, _SECOND, _SECOND, distinct=True),
    "contiguous": _pattern(True, False),
    "timed_out": _pattern(False, True),
    "flat": d.FlatMap(_TWICE, "twice", "turn", _KEPT),
    "rebalanced": _windows(d.InTime(20 * _SECOND), ("count", None, "n"), rows=d.Rebalance(_OTHER)),
    "previous": d.Before(_EVENTS, "user", "amount", ("str", "float")),
    "ticks": d.Ticks(_EVENTS, "user", "str", 3 * _SECOND, merges=False),
    "ticks_added": d.Ticks(_EVENTS, "user", "str", 3 * _SECOND, merges=True),
    "distinct_for_ever": d.Distinct(_EVENTS, ("page",), None),
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
    return ps.app(
        "golden_rest",
        *(
            ps.output(name, queries.built(node, streams, known, partition), ps.jsonl(out / name))
            for name, node in DESCRIBED.items()
        ),
    )


def expected(name: str) -> tuple[list[dict[str, Any]], bool]:
    """The rows of an output by the oracle, and whether they are certain."""
    return oracle.answers(DESCRIBED[name], golden.logs())
