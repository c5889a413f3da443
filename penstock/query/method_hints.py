"""The error for a method that a stream does not have, with what to write instead.

It knows the methods of Polars, Spark and Flink, and those called too early or too late, such as before `key_by`.
"""

from __future__ import annotations

import difflib

from penstock.errors import UnknownMethod
from penstock.origin import here

_KEYED_FIRST = "session landmark count_window last_window last join lookup pattern apply apply_rows process"
_STATELESS = "map select filter explode union map_batches flat_map demux distinct late rebalance"
_AGGREGATES = "count sum avg mean min max median first quantile stddev std variance var n_unique agg"
_AGGREGATES += " aggregate reduce fold"
#: methods of others -> the aggregate function
_FUNCTIONS = {
    "avg": "avg",
    "mean": "avg",
    "min": "min_",
    "max": "max_",
    "median": "median",
    "first": "first",
    "last": "last",
    "quantile": "quantile",
    "stddev": "stddev",
    "std": "stddev",
    "variance": "variance",
    "var": "variance",
    "n_unique": "count_distinct",
    "count_distinct": "count_distinct",
    "collect": "collect",
    "collect_list": "collect",
}


def _table(hints: dict[str, str]) -> dict[str, str]:
    """Hints by method, from hints by several methods."""
    return {method: hint for methods, hint in hints.items() for method in methods.split()}


_ON_ROWS = _table(
    {
        "group_by groupBy groupby keyBy partition_by partitionBy": ".key_by(...)",
        "with_columns withColumn withColumns assign with_column": ".map(name=...)",
        "drop rename withColumnRenamed": ".select(...) with the columns that are to stay",
        "where query": ".filter(...)",
        "flatMap map_partitions mapInPandas pipe": ".flat_map(...) or .map_batches(...)",
        "unique drop_duplicates dropDuplicates dedup": '.distinct(..., within="1h")',
        "concat vstack unionAll unionByName merge": ".union(...)",
        "split branch side_output": ".demux(name=...)",
        "sort order_by orderBy limit head take": ".top(k) after an aggregate",
        "print show write writeStream sink sink_to collect to": 'ps.output("name", rows, ps.console()) in an app',
        "withWatermark assign_timestamps_and_watermarks": "ps.stream(..., time=..., lateness=...)",
        "schema": ".columns",
    }
)
_ON_STREAMS = {
    **_ON_ROWS,
    **{name: f".key_by(...).{name}(...)" for name in _KEYED_FIRST.split()},
    "process": ".key_by(...).apply(...)",
    **_table({_AGGREGATES: '.key_by(...).window("1m").aggregate(...), or .window("1m") over all events'}),
    "count": '.key_by(...).window("1m").count(), or .window("1m").count() over all events',
    "emit": '.window("1m").emit(...)',
    "cross_join": ".product(...)",
}
_ON_KEYED = {
    **_ON_ROWS,
    **{name: f".{name}(...) before .key_by(...)" for name in _STATELESS.split()},
    **_table({_AGGREGATES: '.window("1m").aggregate(...), or .running().aggregate(...) for totals so far'}),
    "count": '.window("1m").count(), or .running().count() for totals so far',
    "sum": '.window("1m").sum(...), or .running().sum(...) for totals so far',
    **_table({"key_by group_by groupBy": 'all keys at once: .key_by("user", "page")'}),
    "process": ".apply(...)",
    "top": '.window("1m").count().top(...)',
    "emit": '.window("1m").emit(...)',
}
_ON_WINDOWED = {
    **_ON_ROWS,
    **{name: f".{name}(...) before .window(...), or after the aggregate" for name in _STATELESS.split()},
    **{name: f".aggregate(ps.{function}(...))" for name, function in _FUNCTIONS.items()},
    **_table({"key_by group_by groupBy keyBy": ".key_by(...) before .window(...)"}),
    "agg": ".aggregate(...)",
    **_table({"reduce fold apply process": ".aggregate(...) with ps.aggregate_function(...)"}),
    "top": ".count().top(...)",
}
_TABLES = {"Keyed": _ON_KEYED, "Windowed": _ON_WINDOWED}


def no_such_method(thing: object, name: str) -> AttributeError:
    """The error for an attribute that an object does not have."""
    kind = type(thing)
    if name.startswith("_") or name in getattr(kind, "__dataclass_fields__", {}):
        return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=thing)
    meant = _TABLES.get(kind.__name__, _ON_STREAMS).get(name)
    public = [one for one in dir(kind) if not one.startswith("_")]
    near = difflib.get_close_matches(name, public, n=1)
    if meant is None and near:
        meant = f".{near[0]}(...)" if callable(getattr(kind, near[0], None)) else f".{near[0]}"
    what = {"Keyed": "a keyed stream", "Windowed": "a stream in windows"}.get(kind.__name__, "a stream")
    return UnknownMethod(
        "NO_SUCH_METHOD",
        f"{what} has no {name!r}",
        where=str(here()),
        hint=f"Did you mean {meant}?" if meant else f"It has: {', '.join(public)}.",
    )
