"""Builds the streams of descriptions with the query API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from penstock.operators.functions import AggregateFunction
from penstock.operators.routes import Partitioner
from tests.transparency import description as d
from tests.transparency.queries.columns import POLARS, SECOND
from tests.transparency.queries.users_code import (
    SQUARES,
    MergingTickCounter,
    Previous,
    TickCounter,
    make_copies,
    make_fold,
)


def partition_by_length(keys: pl.DataFrame) -> pl.Series:
    """Partition keys of any types, by the length of their texts."""
    texts = keys.select(pl.concat_str(pl.all().cast(pl.String).fill_null("~"), separator="|"))
    return texts.to_series().str.len_chars() % 3


#: returns a partitioner for rows, given their first key
PartitionerOf = Callable[[ps.Stream, str], Partitioner]

_BOUNDS: dict[pl.DataType, list[Any]] = {
    pl.String(): ["/b", "bob"],
    pl.Int64(): [0, 2],
    pl.Boolean(): [False, True],
    pl.Datetime("us", "UTC"): [datetime.fromtimestamp(second, UTC) for second in (1_001, 1_004)],
}


def partition_by_range(rows: ps.Stream, key: str) -> Partitioner:
    """Return a partitioner into three ranges of a key; the same for all keys of one type."""
    return ps.by_range(key, _BOUNDS[rows.node.schema[key]])


def build_stream(
    node: Any,
    streams: Mapping[str, ps.Stream],
    known: dict[Any, ps.Stream] | None = None,
    partition: Partitioner | PartitionerOf | None = None,
) -> ps.Stream:
    """Return the stream of a description; a node that is used twice is one stream."""
    known = {} if known is None else known
    if id(node) not in known:
        keyed = partial(_key_by, partition=partition)
        known[id(node)] = _build_node(
            node, streams, lambda input: build_stream(input, streams, known, partition), keyed
        )
    return known[id(node)]


def _key_by(
    rows: ps.Stream, *keys: str, order: Any = None, partition: Partitioner | PartitionerOf | None = None
) -> Any:
    if not keys:
        return rows.key_by(order=order)
    chosen = partition(rows, keys[0]) if callable(partition) else partition
    return rows.key_by(*keys, order=order, partition=chosen)


def _build_node(
    node: Any, streams: Mapping[str, ps.Stream], build: Callable[[Any], ps.Stream], keyed: Callable[..., Any]
) -> ps.Stream:
    match node:
        case d.Source():
            return streams[node.stream]
        case d.Late():
            return streams[node.stream].late()
        case d.Filter():
            return build(node.input).filter(build_condition(node.condition))
        case d.Map():
            columns = {name: build_formula(formula) for name, formula in node.columns}
            return build(node.input).select(**columns) if node.only else build(node.input).map(**columns)
        case d.Explode():
            return build(node.input).explode(node.column)
        case d.FlatMap():
            dtypes = {name: POLARS[kind] for name, kind in node.columns}
            function = make_copies(node.column, node.number)
            return build(node.input).flat_map(function, dtypes | {node.number: pl.Int64()})
        case d.Demux():
            conditions = {f"c{number}": build_condition(one) for number, one in enumerate(node.conditions)}
            outputs = build(node.input).demux(every_match=node.every_match, **conditions)
            return list(outputs.values())[node.chosen]
        case d.Union():
            first, *rest = map(build, node.parts)
            return first.union(*rest)
        case d.Rebalance():
            return build(node.input).rebalance()
        case d.Windows():
            return _build_windows(node, build(node.input), keyed)
        case d.Last():
            return keyed(build(node.input), *node.keys).last(node.size, *node.values, partial=node.partial)
        case d.Distinct():
            within = None if node.within is None else node.within / SECOND
            return build(node.input).distinct(*node.columns, within=within, forever=node.within is None)
        case d.Fold():
            forget = None if node.forget_after is None else node.forget_after / SECOND
            schema = {
                "key": POLARS[node.types[0]],
                "value": POLARS[node.types[1]],
                "before": POLARS[node.types[1]],
            }
            rows = keyed(build(node.input), node.key)
            return rows.apply_rows(make_fold(node.key, node.value), schema, forget_after=forget)
        case d.Previous():
            schema = {
                "key": POLARS[node.types[0]],
                "value": POLARS[node.types[1]],
                "before": POLARS[node.types[1]],
            }
            return keyed(build(node.input), node.key).apply(Previous(node.key, node.value), schema)
        case d.TickCounts():
            operator = (MergingTickCounter if node.merges else TickCounter)(node.key, node.every)
            schema = {"key": POLARS[node.type], "count": pl.Int64()}
            return keyed(build(node.input), node.key, order=node.order).apply(operator, schema)
        case d.Top():
            per = {"per": node.per} if node.per else {}
            return build(node.input).top(
                node.k, node.by, least=node.least, changes_only=node.changes_only, **per
            )
        case d.Pattern():
            return keyed(build(node.input), *node.keys).pattern(
                *(ps.step(s.name, build_condition(s.condition), absent=s.absent) for s in node.steps),
                within=node.within / SECOND,
                matching="contiguous" if node.contiguous else "next",
                after="skip" if node.skip else "overlap",
                timeouts=node.timeouts,
                columns=node.columns,
            )
    return _build_join(node, build, keyed)


def _build_join(node: Any, build: Callable[[Any], ps.Stream], by: Callable[..., Any]) -> ps.Stream:
    where = None if getattr(node, "where", None) is None else build_condition(node.where)
    match node:
        case d.Join():
            left, right = by(build(node.left), *node.keys), by(build(node.right), *node.right_keys)
            bounds: dict[str, Any] = {"before": node.before / SECOND, "after": node.after / SECOND}
            if node.last is not None:
                bounds = {"events": node.last}
            return left.join(right, **bounds, where=where, how=node.how, order=node.order, suffix=node.suffix)
        case d.SelfJoin():
            keyed = by(build(node.input), *node.keys)
            distance: dict[str, Any] = {"events": node.last}
            if node.within is not None:
                distance = {"within": node.within / SECOND, "order": node.order}
            return keyed.join(keyed, **distance, where=where, suffix=node.suffix, distinct_pairs=True)
        case d.Lookup():
            left, table = by(build(node.left), *node.keys), by(build(node.table), *node.table_keys)
            return left.lookup(
                table, how=node.how, deleted=node.deleted, broadcast=node.broadcast, suffix=node.suffix
            )
        case d.Product():
            spans = {"before": node.before, "after": node.after}
            distances: dict[str, Any] = {n: v / SECOND for n, v in spans.items() if v is not None}
            if node.distinct and node.after is not None:
                distances = {"within": node.after / SECOND}
            return build(node.left).product(
                build(node.right),
                where,
                events=node.last,
                suffix=node.suffix,
                distinct_pairs=node.distinct,
                **distances,
            )
    raise AssertionError(f"no way to build {node}")


def _build_windows(node: d.Windows, input: ps.Stream, by: Callable[..., Any]) -> ps.Stream:
    keyed, window = by(input, *node.keys, order=node.order), node.window
    match window:
        case d.TimeWindow():
            every = None if window.every is None else window.every / SECOND
            windowed = keyed.window(window.size / SECOND, every, window.offset / SECOND)
            if window.emit == "change":
                windowed = windowed.emit("change")
            elif window.emit != "close":
                windowed = windowed.emit(every=window.emit / SECOND)
        case d.Running():
            windowed = (
                keyed.running().emit("change")
                if window.emit == "change"
                else keyed.running(window.emit / SECOND)
            )
        case d.CountWindow():
            forget = None if window.forget_after is None else window.forget_after / SECOND
            windowed = keyed.count_window(
                window.size, window.every, partial=window.partial, forget_after=forget
            )
        case d.LastWindow():
            forget = None if window.forget_after is None else window.forget_after / SECOND
            windowed = keyed.last_window(window.size, whole=window.whole, forget_after=forget)
        case d.SessionWindow():
            longest = None if window.longest is None else window.longest / SECOND
            windowed = keyed.session(window.gap / SECOND, longest=longest)
        case d.LandmarkWindow():
            longest = None if window.longest is None else window.longest / SECOND
            marks = build_condition(window.opens), build_condition(window.closes)
            windowed = keyed.landmark(*marks, longest=longest, keep_open=longest is None)
        case _:
            raise AssertionError(f"no such window: {window}")
    return windowed.aggregate(*map(_build_function, node.aggregates))


def _build_function(aggregate: d.Aggregate) -> AggregateFunction:
    if aggregate.column is None:
        return {"count": ps.count, "earliest": ps.earliest, "latest": ps.latest}[aggregate.function](
            aggregate.alias
        )
    if aggregate.function in ("quantile", "approx_quantile"):
        quantile = ps.quantile if aggregate.function == "quantile" else ps.approx_quantile
        return quantile(aggregate.column, aggregate.share, aggregate.alias)
    if aggregate.function == "squares":
        return SQUARES(aggregate.column, aggregate.alias)
    names = {"sum": "sum_", "min": "min_", "max": "max_"}
    function: AggregateFunction = getattr(ps, names.get(aggregate.function, aggregate.function))(
        aggregate.column, aggregate.alias
    )
    return function


def build_condition(condition: d.Compare) -> pl.Expr:
    if condition.op == "true":
        return ps.lit(True)
    mine, other = col(condition.column), condition.other
    if condition.op == "null":
        return mine.is_null()
    if isinstance(other, d.Other):
        other = col(other.column) if other.step is None else ps.prev(other.step, other.column)
    return {">": mine.gt, "<=": mine.le, "==": mine.eq, "!=": mine.ne}[condition.op](other)


def build_formula(formula: d.Formula) -> pl.Expr:
    match formula.what:
        case "constant":
            return ps.lit(formula.by, POLARS["str" if isinstance(formula.by, str) else "int"])
        case "holds":
            return build_condition(formula.by).fill_null(False)
        case "plus":
            return col(formula.column) + formula.by
        case "times":
            return col(formula.column) * formula.by
        case "mod":
            return col(formula.column) % formula.by
        case "steps":
            return pl.int_ranges(0, col(formula.column) % 3)
        case "upper":
            return col(formula.column).str.to_uppercase()
    return col(formula.column)
