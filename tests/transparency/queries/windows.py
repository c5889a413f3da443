"""Random windows, their aggregates, and the best of their rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.transparency import description as d
from tests.transparency.queries.columns import KEYS, SECOND, SPANS, Query, Types, spans, unused_name
from tests.transparency.queries.stateless import conditions


@st.composite
def keys_of(draw: st.DrawFn, query: Query, *, least: int = 1) -> tuple[str, ...]:
    names = query.names_of(*KEYS)
    if not names:
        return ()
    # texts have few values, so that keys have several rows
    few = query.names_of("str", "bool") or names
    chosen = draw(st.lists(st.sampled_from(few), min_size=least, max_size=2, unique=True))
    if draw(st.integers(0, 5)) == 0:
        chosen = [draw(st.sampled_from(names))]
    return tuple(chosen)


FUNCTIONS = [
    "sum",
    "min",
    "max",
    "avg",
    "stddev",
    "median",
    "quantile",
    "count_distinct",
    "first",
    "last",
    "collect",
    "count_of",
    "variance",
    "approx_count_distinct",
    "approx_quantile",
    "squares",
]


@st.composite
def aggregates_of(
    draw: st.DrawFn, query: Query, taken: tuple[str, ...]
) -> tuple[tuple[d.Aggregate, Any], ...]:
    """One to three functions, each with the type of its result."""
    aggregates: list[tuple[d.Aggregate, Any]] = []
    stem = unused_name(query, "a")
    for number in range(draw(st.integers(1, 3))):
        alias = f"{stem}_{number}"
        function = draw(st.sampled_from(["count", "earliest", "latest", *FUNCTIONS, *FUNCTIONS]))
        numbers, plain = query.names_of("int", "float"), query.names_of(*KEYS, "float")
        names = {
            "min": query.names_of("int", "float", "str", "time"),
            "max": query.names_of("int", "float", "str", "time"),
            "count_distinct": plain,
            "approx_count_distinct": plain,
            "count_of": plain,
            "squares": query.names_of("int"),
            "first": plain,
            "last": plain,
            "collect": plain,
        }.get(function, numbers)
        if function in ("count", "earliest", "latest") or not names:
            function = function if function in ("earliest", "latest") else "count"
            aggregates.append((d.Aggregate(function, None, alias), "int" if function == "count" else "time"))
            continue
        column = draw(st.sampled_from(names))
        kind = query.types[column]
        result = {
            "sum": "int" if kind == "int" else "approx",
            "min": kind,
            "max": kind,
            "first": kind,
            "last": kind,
            "count_distinct": "int",
            "approx_count_distinct": "int",
            "count_of": "int",
            "squares": "int",
            "collect": ("list", kind),
        }.get(function, "approx")
        share = draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
        aggregates.append((d.Aggregate(function, column, alias, share), result))
    return tuple(aggregates)


@st.composite
def time_windows(draw: st.DrawFn) -> d.TimeWindow:
    size = draw(
        st.sampled_from([250_000, SECOND, 2 * SECOND, 3_500_000, 4 * SECOND, 10 * SECOND, 60 * SECOND])
    )
    every = draw(
        st.none() | st.sampled_from([250_000, SECOND, 1_500_000, 3 * SECOND, 7 * SECOND, 20 * SECOND])
    )
    if every is not None and size > 20 * every:
        every = None
    emit = draw(st.sampled_from(["close", "close", "change", SECOND, 750_000, 4 * SECOND]))
    return d.TimeWindow(size, every, draw(st.sampled_from([0, 0, 1, 500_000, 5 * SECOND])), emit)


@st.composite
def running_windows(draw: st.DrawFn) -> d.Running:
    return d.Running(draw(st.sampled_from(["change", SECOND, 2 * SECOND, 10 * SECOND])))


@st.composite
def count_windows(draw: st.DrawFn) -> d.CountWindow:
    forget = draw(st.none() | st.sampled_from([SECOND, 4 * SECOND]))
    partial = forget is None and draw(st.booleans())
    return d.CountWindow(draw(st.integers(1, 4)), draw(st.none() | st.integers(1, 5)), partial, forget)


@st.composite
def last_windows(draw: st.DrawFn) -> d.LastWindow:
    forget = draw(st.none() | st.sampled_from([SECOND, 4 * SECOND]))
    return d.LastWindow(draw(st.integers(1, 4)), draw(st.booleans()), forget)


@st.composite
def sessions(draw: st.DrawFn) -> d.SessionWindow:
    return d.SessionWindow(draw(spans), draw(st.none() | st.sampled_from(SPANS)))


WINDOWS: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "time": time_windows,
    "running": running_windows,
    "count": count_windows,
    "last events": last_windows,
    "session": sessions,
}


@st.composite
def windows(draw: st.DrawFn, query: Query, kind: str | None = None) -> Query:
    kind = kind or draw(st.sampled_from([*sorted(WINDOWS), "landmark"]))
    if kind == "landmark":
        longest = draw(st.none() | spans)
        window: Any = d.LandmarkWindow(draw(conditions(query)), draw(conditions(query)), longest)
    else:
        window = draw(WINDOWS[kind]())
    keys = draw(keys_of(query, least=0 if kind in ("time", "running") else 1))
    if not keys and kind not in ("time", "running"):
        window, kind = d.TimeWindow(2 * SECOND), "time"
    keys = _without_window_columns(keys, window)
    return _build_windows(
        query, window, keys, draw(aggregates_of(query, keys)), draw(st.sampled_from([None, None, "strict"]))
    )


def _without_window_columns(keys: tuple[str, ...], window: Any) -> tuple[str, ...]:
    """Return the keys that have no name of a column of the window."""
    taken = ("as_of",) if isinstance(window, d.Running) else ("window_start", "window_end", "as_of", "closed")
    return tuple(key for key in keys if key not in taken)


def _build_windows(query: Query, window: Any, keys: Any, aggregates: Any, order: str | None) -> Query:
    if not isinstance(window, d.TimeWindow | d.Running):
        order = None
    types: Types = {} if isinstance(window, d.Running) else {"window_start": "time", "window_end": "time"}
    if isinstance(window, d.Running) or (isinstance(window, d.TimeWindow) and window.emit != "close"):
        types["as_of"] = "time"
    if isinstance(window, d.LandmarkWindow) and window.longest is not None:
        types["closed"] = "bool"
    types |= {key: query.types[key] for key in keys} | {a.alias: kind for a, kind in aggregates}
    return Query(d.Windows(query.node, keys, window, tuple(a for a, _ in aggregates), order), types)


@st.composite
def tops(draw: st.DrawFn, query: Query, kind: str | None = None) -> Query:
    """The best rows of windows or of totals, of all or of each group."""
    keys = tuple(key for key in draw(keys_of(query)) if key != "rank" and query.types[key] != "bool")
    numbers = query.names_of("int")
    window: Any = draw(time_windows().map(lambda w: replace(w, emit="close")))
    if (kind or draw(st.sampled_from(["windows", "running"]))) == "running":
        window = d.Running(draw(st.sampled_from([SECOND, 2 * SECOND, 10 * SECOND])))
    keys = _without_window_columns(keys, window)
    function = draw(st.sampled_from(["count", "sum", "min", "max"])) if numbers else "count"
    column = None if function == "count" else draw(st.sampled_from(numbers))
    by = unused_name(query, "by")
    ranked = _build_windows(query, window, keys, ((d.Aggregate(function, column, by), "int"),), None)
    if isinstance(window, d.TimeWindow) and draw(st.integers(0, 2)) == 0:
        ranked = Query(d.Filter(ranked.node, d.Compare(by, ">", 0)), ranked.types)
    per: tuple[str, ...] = ()
    if keys and draw(st.booleans()) and isinstance(window, d.Running | d.TimeWindow):
        per = (draw(st.sampled_from(keys)),)
    node = d.Top(ranked.node, draw(st.integers(1, 3)), by, draw(st.booleans()), draw(st.booleans()), per)
    return Query(node, ranked.types | {"rank": "small"})
