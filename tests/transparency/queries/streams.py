"""The streams that descriptions mean, in the words of the query API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from penstock.operators.functions import AggregateFunction
from penstock.operators.routing import Partitioner
from tests.transparency import description as d
from tests.transparency.queries.columns import POLARS, SECOND
from tests.transparency.queries.users_code import SQUARES, Adding, Counting, Previous, copies, folded


def parts_of(keys: pl.DataFrame) -> pl.Series:
    """A partitioner for keys of any types."""
    texts = keys.select(pl.concat_str(pl.all().cast(pl.String).fill_null("~"), separator="|"))
    return texts.to_series().str.len_chars() % 3


def built(
    node: Any,
    streams: Mapping[str, ps.Stream],
    known: dict[Any, ps.Stream] | None = None,
    partition: Partitioner | None = None,
) -> ps.Stream:
    """The stream that a description means; a node that is used twice is one stream."""
    known = {} if known is None else known
    if id(node) not in known:
        keyed = partial(_keyed, partition=partition)
        known[id(node)] = _built(node, streams, lambda one: built(one, streams, known, partition), keyed)
    return known[id(node)]


def _keyed(rows: ps.Stream, *keys: str, order: Any = None, partition: Partitioner | None = None) -> Any:
    return rows.key_by(*keys, order=order, partition=partition) if keys else rows.key_by(order=order)


def _built(
    node: Any, streams: Mapping[str, ps.Stream], of: Callable[[Any], ps.Stream], keyed: Callable[..., Any]
) -> ps.Stream:
    match node:
        case d.Source():
            return streams[node.stream]
        case d.Late():
            return streams[node.stream].late()
        case d.Filter():
            return of(node.input).filter(expression(node.condition))
        case d.Map():
            columns = {name: computed(formula) for name, formula in node.columns}
            return of(node.input).select(**columns) if node.only else of(node.input).map(**columns)
        case d.Explode():
            return of(node.input).explode(node.column)
        case d.FlatMap():
            kept = {name: POLARS[kind] for name, kind in node.kept}
            return of(node.input).flat_map(copies(node.column, node.turn), kept | {node.turn: pl.Int64()})
        case d.Demux():
            conditions = {f"c{number}": expression(one) for number, one in enumerate(node.conditions)}
            dealt = of(node.input).demux(every_match=node.every_match, **conditions)
            return list(dealt.values())[node.chosen]
        case d.Union():
            first, *rest = map(of, node.parts)
            return first.union(*rest)
        case d.Rebalance():
            return of(node.input).rebalance()
        case d.Windows():
            return _windows(node, of(node.input), keyed)
        case d.Last():
            return keyed(of(node.input), *node.keys).last(node.size, *node.values, partial=node.partial)
        case d.Distinct():
            within = None if node.within is None else node.within / SECOND
            return of(node.input).distinct(*node.columns, within=within, forever=node.within is None)
        case d.Fold():
            forget = None if node.forget_after is None else node.forget_after / SECOND
            schema = {
                "key": POLARS[node.types[0]],
                "value": POLARS[node.types[1]],
                "before": POLARS[node.types[1]],
            }
            rows = keyed(of(node.input), node.key)
            return rows.apply_rows(folded(node.key, node.value), schema, forget_after=forget)
        case d.Before():
            schema = {
                "key": POLARS[node.types[0]],
                "value": POLARS[node.types[1]],
                "before": POLARS[node.types[1]],
            }
            return keyed(of(node.input), node.key).apply(Previous(node.key, node.value), schema)
        case d.Ticks():
            operator = (Adding if node.merges else Counting)(node.key, node.every)
            schema = {"key": POLARS[node.type], "told": pl.Int64()}
            return keyed(of(node.input), node.key, order=node.order).apply(operator, schema)
        case d.Top():
            per = {"per": node.per} if node.per else {}
            return of(node.input).top(
                node.k, node.by, least=node.least, changes_only=node.changes_only, **per
            )
        case d.Pattern():
            return keyed(of(node.input), *node.keys).pattern(
                *(ps.step(s.name, expression(s.condition), absent=s.absent) for s in node.steps),
                within=node.within / SECOND,
                matching="contiguous" if node.contiguous else "next",
                after="skip" if node.skip else "overlap",
                timeouts=node.timeouts,
                columns=node.columns,
            )
    return _meeting(node, of, keyed)


def _meeting(node: Any, of: Callable[[Any], ps.Stream], by: Callable[..., Any]) -> ps.Stream:
    where = None if getattr(node, "where", None) is None else expression(node.where)
    match node:
        case d.Join():
            left, right = by(of(node.left), *node.keys), by(of(node.right), *node.right_keys)
            bounds: dict[str, Any] = {"before": node.before / SECOND, "after": node.after / SECOND}
            if node.last is not None:
                bounds = {"events": node.last}
            return left.join(right, **bounds, where=where, how=node.how, order=node.order, suffix=node.suffix)
        case d.Pairs():
            keyed = by(of(node.input), *node.keys)
            reach: dict[str, Any] = {"events": node.last}
            if node.within is not None:
                reach = {"within": node.within / SECOND, "order": node.order}
            return keyed.join(keyed, **reach, where=where, suffix=node.suffix, distinct_pairs=True)
        case d.Lookup():
            left, table = by(of(node.left), *node.keys), by(of(node.table), *node.table_keys)
            return left.lookup(
                table, how=node.how, deleted=node.deleted, broadcast=node.broadcast, suffix=node.suffix
            )
        case d.Product():
            spans = {"before": node.before, "after": node.after}
            said: dict[str, Any] = {n: v / SECOND for n, v in spans.items() if v is not None}
            if node.distinct and node.after is not None:
                said = {"within": node.after / SECOND}
            return of(node.left).product(
                of(node.right),
                where,
                events=node.last,
                suffix=node.suffix,
                distinct_pairs=node.distinct,
                **said,
            )
    raise AssertionError(f"no way to build {node}")


def _windows(node: d.Windows, input: ps.Stream, by: Callable[..., Any]) -> ps.Stream:
    keyed, window = by(input, *node.keys, order=node.order), node.window
    match window:
        case d.InTime():
            every = None if window.every is None else window.every / SECOND
            cut = keyed.window(window.size / SECOND, every, window.offset / SECOND)
            if window.emit == "change":
                cut = cut.emit("change")
            elif window.emit != "close":
                cut = cut.emit(every=window.emit / SECOND)
        case d.Running():
            cut = (
                keyed.running().emit("change")
                if window.emit == "change"
                else keyed.running(window.emit / SECOND)
            )
        case d.ByCount():
            forget = None if window.forget_after is None else window.forget_after / SECOND
            cut = keyed.count_window(window.size, window.every, partial=window.partial, forget_after=forget)
        case d.LastEvents():
            forget = None if window.forget_after is None else window.forget_after / SECOND
            cut = keyed.last_window(window.size, whole=window.whole, forget_after=forget)
        case d.Sessions():
            longest = None if window.longest is None else window.longest / SECOND
            cut = keyed.session(window.gap / SECOND, longest=longest)
        case d.Landmarks():
            longest = None if window.longest is None else window.longest / SECOND
            marks = expression(window.opens), expression(window.closes)
            cut = keyed.landmark(*marks, longest=longest, keep_open=longest is None)
        case _:
            raise AssertionError(f"no such window: {window}")
    return cut.aggregate(*map(_function, node.aggregates))


def _function(aggregate: d.Aggregate) -> AggregateFunction:
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
    made: AggregateFunction = getattr(ps, names.get(aggregate.function, aggregate.function))(
        aggregate.column, aggregate.alias
    )
    return made


def expression(condition: d.Compare) -> pl.Expr:
    if condition.op == "true":
        return ps.lit(True)
    mine, other = col(condition.column), condition.other
    if condition.op == "null":
        return mine.is_null()
    if isinstance(other, d.Other):
        other = col(other.column) if other.step is None else ps.prev(other.step, other.column)
    return {">": mine.gt, "<=": mine.le, "==": mine.eq, "!=": mine.ne}[condition.op](other)


def computed(formula: d.Formula) -> pl.Expr:
    match formula.what:
        case "constant":
            return ps.lit(formula.by, POLARS["str" if isinstance(formula.by, str) else "int"])
        case "holds":
            return expression(formula.by).fill_null(False)
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
