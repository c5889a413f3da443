"""Descriptions of queries drawn at random, legal ones only, and the streams that are built of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.operators.functions import AggregateFunction
from tests.transparency import description as d

SECOND = 1_000_000
#: what a column holds; "approx" is a number that is not the same to the last digit however it is computed
Types = dict[str, Any]
EVENT: Types = {"time": "time", "user": "str", "page": "str", "n": "int", "x": "float"}
STREAMS = ("one", "other")

POLARS: dict[Any, pl.DataType] = {
    "time": pl.Datetime("us", "UTC"),
    "str": pl.String(),
    "int": pl.Int64(),
    "float": pl.Float64(),
    "approx": pl.Float64(),
    "bool": pl.Boolean(),
    "small": pl.Int32(),
}
KEYS = ("str", "int", "bool", "time")
COMPARED = ("int", "float", "str")

SPANS = [1, 250_000, SECOND, 2 * SECOND, 3 * SECOND, 7 * SECOND, 60 * SECOND]
spans = st.sampled_from(SPANS)


@dataclass(frozen=True)
class Query:
    """A description and the columns of its rows."""

    node: Any
    types: Types

    def of(self, *kinds: Any) -> list[str]:
        return [name for name, kind in self.types.items() if kind in kinds]


# -- a description as a stream -------------------------------------------------------------------


def built(
    node: Any, streams: Mapping[str, ps.Stream], known: dict[Any, ps.Stream] | None = None
) -> ps.Stream:
    """The stream that a description means; a node that is used twice is one stream."""
    known = {} if known is None else known
    if id(node) not in known:
        known[id(node)] = _built(node, streams, lambda one: built(one, streams, known))
    return known[id(node)]


def _built(node: Any, streams: Mapping[str, ps.Stream], of: Callable[[Any], ps.Stream]) -> ps.Stream:
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
            return _windows(node, of(node.input))
        case d.Last():
            keyed = of(node.input).key_by(*node.keys)
            return keyed.last(node.size, *node.values, partial=node.partial)
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
            return (
                of(node.input)
                .key_by(node.key)
                .apply_rows(folded(node.key, node.value), schema, forget_after=forget)
            )
        case d.Before():
            schema = {
                "key": POLARS[node.types[0]],
                "value": POLARS[node.types[1]],
                "before": POLARS[node.types[1]],
            }
            return of(node.input).key_by(node.key).apply(Previous(node.key, node.value), schema)
        case d.Ticks():
            operator = (Adding if node.merges else Counting)(node.key, node.every)
            schema = {"key": POLARS[node.type], "told": pl.Int64()}
            return of(node.input).key_by(node.key, order=node.order).apply(operator, schema)
        case d.Top():
            per = {"per": node.per} if node.per else {}
            return of(node.input).top(
                node.k, node.by, least=node.least, changes_only=node.changes_only, **per
            )
        case d.Pattern():
            return (
                of(node.input)
                .key_by(*node.keys)
                .pattern(
                    *(ps.step(s.name, expression(s.condition), absent=s.absent) for s in node.steps),
                    within=node.within / SECOND,
                    matching="contiguous" if node.contiguous else "next",
                    after="skip" if node.skip else "overlap",
                    timeouts=node.timeouts,
                    columns=node.columns,
                )
            )
    return _meeting(node, of)


def _meeting(node: Any, of: Callable[[Any], ps.Stream]) -> ps.Stream:
    where = None if getattr(node, "where", None) is None else expression(node.where)
    match node:
        case d.Join():
            left, right = of(node.left).key_by(*node.keys), of(node.right).key_by(*node.right_keys)
            bounds: dict[str, Any] = {"before": node.before / SECOND, "after": node.after / SECOND}
            if node.last is not None:
                bounds = {"events": node.last}
            return left.join(right, **bounds, where=where, how=node.how, order=node.order, suffix=node.suffix)
        case d.Pairs():
            keyed = of(node.input).key_by(*node.keys)
            reach: dict[str, Any] = {"events": node.last}
            if node.within is not None:
                reach = {"within": node.within / SECOND, "order": node.order}
            return keyed.join(keyed, **reach, where=where, suffix=node.suffix, distinct_pairs=True)
        case d.Lookup():
            left, table = of(node.left).key_by(*node.keys), of(node.table).key_by(*node.table_keys)
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


def _windows(node: d.Windows, rows: ps.Stream) -> ps.Stream:
    keyed, window = rows.key_by(*node.keys, order=node.order), node.window
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
    if aggregate.function == "quantile":
        return ps.quantile(aggregate.column, aggregate.share, aggregate.alias)
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


def copies(column: str, turn: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def copied(frame: pl.DataFrame) -> pl.DataFrame:
        times = frame[column].fill_null(0) % 3
        return pl.concat([frame.filter(times >= n).with_columns(pl.lit(n).alias(turn)) for n in (1, 2)])

    return copied


def folded(key: str, value: str) -> Callable[..., Any]:
    def after(before: Any, row: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> Any:
        emit({"key": row[key], "value": row[value], "before": before})
        if row[value] is not None and row[value] > 2:
            emit({"key": row[key], "value": row[value], "before": None})
        return row[value]

    return after


class Previous(ps.CustomOperator):
    """Each value with the key's value before it."""

    def __init__(self, key: str, value: str) -> None:
        self.key, self.value = key, value

    def init_state(self) -> dict[Any, Any]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        before = []
        for key, value in batch.select(self.key, self.value).iter_rows():
            before.append(state.get(key))
            state[key] = value
        made = batch.select("_time", key=self.key, value=self.value)
        out.emit(made.with_columns(pl.Series("before", before, dtype=batch.schema[self.value])))


class Counting(ps.CustomOperator):
    """How many rows each key had since the last tick."""

    commutative = True

    def __init__(self, key: str, every: int) -> None:
        self.key, self.every = key, every / SECOND

    def init_state(self) -> dict[Any, int]:
        return {}

    def process(self, batch: pl.DataFrame, state: Any, out: ps.Out, context: ps.Context) -> None:
        for key in batch[self.key]:
            state[key] = state.get(key, 0) + 1

    def on_watermark(self, state: Any, out: ps.Out, context: ps.Context) -> Any:
        out.emit([{"key": key, "told": count} for key, count in state.items()])
        return {}


class Adding(Counting):
    """The same, with states that are added up."""

    def merge(self, one: Any, other: Any) -> Any:
        return {key: one.get(key, 0) + other.get(key, 0) for key in one.keys() | other.keys()}


# -- drawing: rows without memory ----------------------------------------------------------------


@st.composite
def conditions(draw: st.DrawFn, query: Query, *, others: tuple[str, ...] = ()) -> d.Compare:
    """A condition on the columns there are; with `others`, perhaps on a column that an earlier step took."""
    names = query.of(*COMPARED, "bool")
    if not names:
        return d.Compare(next(iter(query.types)), draw(st.sampled_from(["null", "true"])))
    name = draw(st.sampled_from(names))
    kind = query.types[name]
    alike = query.of(kind)
    if others and draw(st.booleans()):
        other: Any = d.Other(draw(st.sampled_from(alike)), draw(st.sampled_from(others)))
        return d.Compare(
            name, draw(st.sampled_from([">", "==", "!="] if kind != "bool" else ["==", "!="])), other
        )
    if kind == "bool":
        return d.Compare(name, "==", draw(st.booleans()))
    op = draw(st.sampled_from([">", ">", "!=", "!=", "!=", "true", "true", "<=", "==", "null"]))
    if op in ("null", "true"):
        return d.Compare(name, op)
    if len(alike) > 1 and draw(st.integers(0, 3)) == 0:
        return d.Compare(name, op, d.Other(draw(st.sampled_from(alike))))
    values = {"int": [-1, 0, 1, 2], "float": [-3.0, 0.0, 0.25], "str": ["", "/b", "bob"]}
    return d.Compare(name, op, draw(st.sampled_from(values[kind])))


def fresh(query: Query, stem: str) -> str:
    number = 1
    while any(f"{stem}{number}" in name for name in query.types):
        number += 1
    return f"{stem}{number}"


@st.composite
def mapped(draw: st.DrawFn, query: Query) -> Query:
    choices = [("constant", "str"), ("holds", "bool")]
    choices += [(what, "int") for what in ("plus", "times", "mod") if query.of("int")]
    choices += [("upper", "str")] if query.of("str") else []
    what, kind = draw(st.sampled_from(choices))
    name = fresh(query, "m")
    if what == "constant":
        formula = d.Formula(what, by="all")
    elif what == "holds":
        formula = d.Formula(what, by=draw(conditions(query)))
    else:
        column = draw(st.sampled_from(query.of(kind)))
        if draw(st.booleans()) and column not in ("time",):
            name = column
        formula = d.Formula(what, column, draw(st.integers(2, 3)))
    return Query(d.Map(query.node, ((name, formula),)), query.types | {name: kind})


@st.composite
def selected(draw: st.DrawFn, query: Query) -> Query:
    """Some columns only, some under other names."""
    names = draw(st.lists(st.sampled_from(list(query.types)), min_size=1, unique=True))
    names += [name for name in query.of("str", "int")[:2] if name not in names]
    stem = fresh(query, "s") if draw(st.booleans()) else ""
    columns = tuple((f"{stem}{name}", d.Formula("copy", name)) for name in names)
    return Query(
        d.Map(query.node, columns, only=True), {f"{stem}{name}": query.types[name] for name in names}
    )


@st.composite
def filtered(draw: st.DrawFn, query: Query) -> Query:
    return Query(d.Filter(query.node, draw(conditions(query))), query.types)


@st.composite
def exploded(draw: st.DrawFn, query: Query) -> Query:
    lists = [name for name, kind in query.types.items() if isinstance(kind, tuple)]
    if lists and draw(st.booleans()):
        name = draw(st.sampled_from(lists))
        return Query(d.Explode(query.node, name), query.types | {name: query.types[name][1]})
    numbers = query.of("int")
    if not numbers:
        return draw(filtered(query))
    name = fresh(query, "l")
    steps = d.Map(query.node, ((name, d.Formula("steps", draw(st.sampled_from(numbers)))),))
    return Query(d.Explode(steps, name), query.types | {name: "int"})


@st.composite
def flat_mapped(draw: st.DrawFn, query: Query) -> Query:
    numbers = query.of("int")
    if not numbers:
        return draw(filtered(query))
    kept = {name: kind for name, kind in query.types.items() if kind in POLARS}
    turn = fresh(query, "t")
    node = d.FlatMap(query.node, draw(st.sampled_from(numbers)), turn, tuple(kept.items()))
    return Query(node, kept | {turn: "int"})


@st.composite
def dealt_out(draw: st.DrawFn, query: Query) -> Query:
    given = tuple(draw(st.lists(conditions(query), min_size=1, max_size=2)))
    return Query(
        d.Demux(query.node, given, draw(st.integers(0, len(given))), draw(st.booleans())), query.types
    )


@st.composite
def united(draw: st.DrawFn, query: Query) -> Query:
    """A stream with itself, filtered or not: its events may be in both parts."""
    part = draw(st.sampled_from([query, *([draw(filtered(query))] * 2)]))
    parts = (query.node, part.node) if draw(st.booleans()) else (part.node, query.node)
    return Query(d.Union(parts), query.types)


def rebalanced(query: Query) -> st.SearchStrategy[Query]:
    return st.just(Query(d.Rebalance(query.node), query.types))


STATELESS: dict[str, Callable[[Query], st.SearchStrategy[Query]]] = {
    "map": mapped,
    "select": selected,
    "filter": filtered,
    "explode": exploded,
    "flat map": flat_mapped,
    "demux": dealt_out,
    "union": united,
    "rebalance": rebalanced,
}


@st.composite
def sources(draw: st.DrawFn) -> Query:
    """A stream, two of them together, or rarely the late events of one."""
    kind = draw(st.sampled_from(["one"] * 6 + ["both"] * 3 + ["other", "late"]))
    if kind == "both":
        return Query(d.Union(tuple(map(d.Source, STREAMS))), EVENT)
    return Query(d.Late("one") if kind == "late" else d.Source(kind), EVENT)


@st.composite
def stateless(draw: st.DrawFn, query: Query, most: int = 2) -> Query:
    harmless = ["map", "select", "union", "rebalance"]
    for _ in range(draw(st.integers(0, most))):
        query = draw(STATELESS[draw(st.sampled_from(harmless + sorted(STATELESS)))](query))
    return query


# -- drawing: rows with memory -------------------------------------------------------------------


@st.composite
def keys_of(draw: st.DrawFn, query: Query, *, least: int = 1) -> tuple[str, ...]:
    names = query.of(*KEYS)
    if not names:
        return ()
    # texts have few values, so that something comes together
    few = query.of("str", "bool") or names
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
]


@st.composite
def aggregates_of(
    draw: st.DrawFn, query: Query, taken: tuple[str, ...]
) -> tuple[tuple[d.Aggregate, Any], ...]:
    """One to three functions, each with the type of its answer."""
    made: list[tuple[d.Aggregate, Any]] = []
    stem = fresh(query, "a")
    for number in range(draw(st.integers(1, 3))):
        alias = f"{stem}_{number}"
        function = draw(st.sampled_from(["count", "earliest", "latest", *FUNCTIONS, *FUNCTIONS]))
        numbers, plain = query.of("int", "float"), query.of(*KEYS, "float")
        names = {
            "min": query.of("int", "float", "str", "time"),
            "max": query.of("int", "float", "str", "time"),
            "count_distinct": plain,
            "first": plain,
            "last": plain,
            "collect": plain,
        }.get(function, numbers)
        if function in ("count", "earliest", "latest") or not names:
            function = function if function in ("earliest", "latest") else "count"
            made.append((d.Aggregate(function, None, alias), "int" if function == "count" else "time"))
            continue
        column = draw(st.sampled_from(names))
        kind = query.types[column]
        answer = {
            "sum": "int" if kind == "int" else "approx",
            "min": kind,
            "max": kind,
            "first": kind,
            "last": kind,
            "count_distinct": "int",
            "collect": ("list", kind),
        }.get(function, "approx")
        share = draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
        made.append((d.Aggregate(function, column, alias, share), answer))
    return tuple(made)


@st.composite
def time_windows(draw: st.DrawFn) -> d.InTime:
    size = draw(
        st.sampled_from([250_000, SECOND, 2 * SECOND, 3_500_000, 4 * SECOND, 10 * SECOND, 60 * SECOND])
    )
    every = draw(
        st.none() | st.sampled_from([250_000, SECOND, 1_500_000, 3 * SECOND, 7 * SECOND, 20 * SECOND])
    )
    if every is not None and size > 20 * every:
        every = None
    emit = draw(st.sampled_from(["close", "close", "change", SECOND, 750_000, 4 * SECOND]))
    return d.InTime(size, every, draw(st.sampled_from([0, 0, 1, 500_000, 5 * SECOND])), emit)


@st.composite
def running_windows(draw: st.DrawFn) -> d.Running:
    return d.Running(draw(st.sampled_from(["change", SECOND, 2 * SECOND, 10 * SECOND])))


@st.composite
def count_windows(draw: st.DrawFn) -> d.ByCount:
    forget = draw(st.none() | st.sampled_from([SECOND, 4 * SECOND]))
    partial = forget is None and draw(st.booleans())
    return d.ByCount(draw(st.integers(1, 4)), draw(st.none() | st.integers(1, 5)), partial, forget)


@st.composite
def last_windows(draw: st.DrawFn) -> d.LastEvents:
    forget = draw(st.none() | st.sampled_from([SECOND, 4 * SECOND]))
    return d.LastEvents(draw(st.integers(1, 4)), draw(st.booleans()), forget)


@st.composite
def sessions(draw: st.DrawFn) -> d.Sessions:
    return d.Sessions(draw(spans), draw(st.none() | st.sampled_from(SPANS)))


WINDOWS: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "time": time_windows,
    "running": running_windows,
    "count": count_windows,
    "last events": last_windows,
    "session": sessions,
}


@st.composite
def windowed(draw: st.DrawFn, query: Query, kind: str | None = None) -> Query:
    kind = kind or draw(st.sampled_from([*sorted(WINDOWS), "landmark"]))
    if kind == "landmark":
        longest = draw(st.none() | spans)
        window: Any = d.Landmarks(draw(conditions(query)), draw(conditions(query)), longest)
    else:
        window = draw(WINDOWS[kind]())
    keys = draw(keys_of(query, least=0 if kind in ("time", "running") else 1))
    if not keys and kind not in ("time", "running"):
        window, kind = d.InTime(2 * SECOND), "time"
    keys = _named_otherwise(keys, window)
    return _windowed(
        query, window, keys, draw(aggregates_of(query, keys)), draw(st.sampled_from([None, None, "strict"]))
    )


def _named_otherwise(keys: tuple[str, ...], window: Any) -> tuple[str, ...]:
    """The keys that are not called as the columns of the window are."""
    taken = ("as_of",) if isinstance(window, d.Running) else ("window_start", "window_end", "as_of", "closed")
    return tuple(key for key in keys if key not in taken)


def _windowed(query: Query, window: Any, keys: Any, aggregates: Any, order: str | None) -> Query:
    if not isinstance(window, d.InTime | d.Running):
        order = None
    types: Types = {} if isinstance(window, d.Running) else {"window_start": "time", "window_end": "time"}
    if isinstance(window, d.Running) or (isinstance(window, d.InTime) and window.emit != "close"):
        types["as_of"] = "time"
    if isinstance(window, d.Landmarks) and window.longest is not None:
        types["closed"] = "bool"
    types |= {key: query.types[key] for key in keys} | {a.alias: kind for a, kind in aggregates}
    return Query(d.Windows(query.node, keys, window, tuple(a for a, _ in aggregates), order), types)


@st.composite
def last_n(draw: st.DrawFn, query: Query) -> Query:
    keys = draw(keys_of(query))
    values = tuple(draw(st.lists(st.sampled_from(list(query.types)), min_size=1, max_size=3, unique=True)))
    values = tuple(value for value in values if value not in keys)
    if not keys or not values:
        return draw(windowed(query, "time"))
    node = d.Last(query.node, keys, draw(st.integers(1, 4)), values, draw(st.booleans()))
    kinds = {key: query.types[key] for key in keys}
    return Query(node, kinds | {value: ("list", query.types[value]) for value in values})


def _joined_types(left: Types, right: Types, keys: Any, right_keys: Any, suffix: str) -> Types:
    shared = [mine for mine, theirs in zip(keys, right_keys, strict=True) if mine == theirs]
    return left | {
        (name + suffix if name in left else name): kind for name, kind in right.items() if name not in shared
    }


@st.composite
def _sides(draw: st.DrawFn, query: Query, right: Query | None) -> tuple[Query, Query, Any, Any]:
    """Another stream to meet, and keys of equal types on both sides."""
    if right is None:
        other = Query(d.Source("other"), EVENT)
        right = draw(stateless(draw(st.sampled_from([other, other, query])), 1))
    for kind in draw(st.permutations(["str", "int"])):
        mine, theirs = query.of(kind), right.of(kind)
        if mine and theirs:
            pairs = [(a, b) for a in mine for b in theirs]
            same = [(a, b) for a, b in pairs if a == b] or pairs
            one, other_key = draw(st.sampled_from(same if draw(st.integers(0, 4)) else pairs))
            return query, right, (one,), (other_key,)
    return query, right, (), ()


@st.composite
def joined(draw: st.DrawFn, query: Query, right: Query | None = None, kind: str | None = None) -> Query:
    left, right, keys, right_keys = draw(_sides(query, right))
    if not keys:
        return draw(windowed(query, "time"))
    suffix = fresh(Query(None, left.types | right.types), "_r")
    types = _joined_types(left.types, right.types, keys, right_keys, suffix)
    where = draw(st.none() | conditions(Query(None, types)))
    if (kind or draw(st.sampled_from(["time", "time", "last"]))) == "last":
        node = d.Join(
            left.node, keys, right.node, right_keys, where=where, last=draw(st.integers(1, 3)), suffix=suffix
        )
    else:
        bounds = draw(st.sampled_from([0, *SPANS])), draw(st.sampled_from([0, *SPANS]))
        how = draw(st.sampled_from(["inner", "inner", "left", "right", "full"]))
        order = draw(st.sampled_from([None, "epoch", "strict"]))
        node = d.Join(left.node, keys, right.node, right_keys, *bounds, where, how, order, suffix=suffix)
    return Query(node, types)


@st.composite
def paired(draw: st.DrawFn, query: Query) -> Query:
    keys = draw(keys_of(query))
    if not keys:
        return draw(windowed(query, "time"))
    suffix = fresh(query, "_p")
    types = _joined_types(query.types, query.types, keys, keys, suffix)
    within = draw(st.none() | st.sampled_from([0, *SPANS]))
    last = draw(st.integers(1, 3)) if within is None else None
    where = draw(st.none() | conditions(Query(None, types)))
    return Query(
        d.Pairs(query.node, keys, within, last, where, draw(st.sampled_from([None, "strict"])), suffix), types
    )


@st.composite
def looked_up(draw: st.DrawFn, query: Query, right: Query | None = None) -> Query:
    left, table, keys, table_keys = draw(_sides(query, right))
    if not keys:
        return draw(windowed(query, "time"))
    suffix = fresh(Query(None, left.types | table.types), "_t")
    deleted = None
    types = table.types
    if draw(st.booleans()):
        deleted = fresh(Query(None, left.types | table.types), "gone")
        formula = d.Formula("holds", by=draw(conditions(table)))
        table = Query(d.Map(table.node, ((deleted, formula),)), table.types | {deleted: "bool"})
    how = draw(st.sampled_from(["left", "inner"]))
    node = d.Lookup(left.node, keys, table.node, table_keys, how, deleted, draw(st.booleans()), suffix)
    return Query(node, _joined_types(left.types, types, keys, table_keys, suffix))


@st.composite
def multiplied(draw: st.DrawFn, query: Query, right: Query | None = None) -> Query:
    """Every row with every one near it."""
    distinct = right is None and draw(st.integers(0, 2)) == 0
    if right is None:
        other = Query(d.Source("other"), EVENT)
        right = query if distinct else draw(stateless(draw(st.sampled_from([other, other, query])), 1))
    suffix = fresh(Query(None, query.types | right.types), "_x")
    types = _joined_types(query.types, right.types, (), (), suffix)
    last = draw(st.none() | st.integers(1, 3))
    before: int | None = draw(st.sampled_from([0, 1, SECOND, 3 * SECOND]))
    after: int | None = draw(st.sampled_from([0, 1, SECOND, 3 * SECOND]))
    if last is not None and draw(st.booleans()):
        before = after = None
    if distinct:
        before = after
    where = draw(st.none() | conditions(Query(None, types)))
    return Query(d.Product(query.node, right.node, before, after, last, where, distinct, suffix), types)


@st.composite
def patterned(draw: st.DrawFn, query: Query) -> Query:
    keys = draw(keys_of(query))
    if not keys:
        return draw(windowed(query, "time"))
    contiguous, timeouts = draw(st.booleans()), draw(st.booleans())
    names = [f"p{letter}" for letter in "abcd"[: draw(st.integers(2, 4))]]
    steps: list[d.Step] = []
    for number, name in enumerate(names):
        earlier = tuple(step.name for step in steps if not step.absent)
        last = number == len(names) - 1
        may = number > 0 and (not timeouts if last else not contiguous)
        absent = may and draw(st.booleans())
        steps.append(d.Step(name, draw(conditions(query, others=earlier)), absent))
    plain = [name for name in query.of(*KEYS, "float") if name not in keys and name != "time"]
    columns = tuple(draw(st.lists(st.sampled_from(plain), max_size=2, unique=True))) if plain else ()
    node = d.Pattern(
        query.node, keys, tuple(steps), draw(spans), contiguous, draw(st.booleans()), timeouts, columns
    )
    types = {key: query.types[key] for key in keys}
    for step in steps:
        if not step.absent:
            types |= {f"{step.name}_time": "time"} | {f"{step.name}_{c}": query.types[c] for c in columns}
    return Query(node, types | ({"matched": "bool"} if timeouts else {}))


@st.composite
def distinct(draw: st.DrawFn, query: Query) -> Query:
    names = query.of(*KEYS, "float")
    if not names:
        return draw(windowed(query, "time"))
    columns = tuple(
        draw(st.lists(st.sampled_from(query.of("str") or names), min_size=1, max_size=2, unique=True))
    )
    return Query(d.Distinct(query.node, columns, draw(st.none() | spans)), query.types)


@st.composite
def _user_made(draw: st.DrawFn, query: Query, kind: str) -> Query:
    keys, values = query.of("str", "int", "bool"), query.of("int")
    if not keys or not values:
        return draw(windowed(query, "time"))
    key, value = draw(st.sampled_from(query.of("str") or keys)), draw(st.sampled_from(values))
    types = (query.types[key], query.types[value])
    made: Types = {"key": types[0], "value": types[1], "before": types[1]}
    if kind == "fold":
        return Query(d.Fold(query.node, key, value, types, draw(st.none() | spans)), made)
    if kind == "before":
        return Query(d.Before(query.node, key, value, types), made)
    order = draw(st.sampled_from([None, "epoch", "strict"]))
    node = d.Ticks(
        query.node, key, types[0], draw(st.sampled_from([SECOND, 3 * SECOND])), draw(st.booleans()), order
    )
    return Query(node, {"key": types[0], "told": "int"})


@st.composite
def topped(draw: st.DrawFn, query: Query, kind: str | None = None) -> Query:
    """The best rows of windows or of totals, of all or of each group."""
    keys = tuple(key for key in draw(keys_of(query)) if key != "rank" and query.types[key] != "bool")
    numbers = query.of("int")
    window: Any = draw(time_windows().map(lambda w: replace(w, emit="close")))
    if (kind or draw(st.sampled_from(["windows", "running"]))) == "running":
        window = d.Running(draw(st.sampled_from([SECOND, 2 * SECOND, 10 * SECOND])))
    keys = _named_otherwise(keys, window)
    function = draw(st.sampled_from(["count", "sum", "min", "max"])) if numbers else "count"
    column = None if function == "count" else draw(st.sampled_from(numbers))
    by = fresh(query, "by")
    ranked = _windowed(query, window, keys, ((d.Aggregate(function, column, by), "int"),), None)
    if isinstance(window, d.InTime) and draw(st.integers(0, 2)) == 0:
        ranked = Query(d.Filter(ranked.node, d.Compare(by, ">", 0)), ranked.types)
    per: tuple[str, ...] = ()
    if keys and draw(st.booleans()) and isinstance(window, d.Running | d.InTime):
        per = (draw(st.sampled_from(keys)),)
    node = d.Top(ranked.node, draw(st.integers(1, 3)), by, draw(st.booleans()), draw(st.booleans()), per)
    return Query(node, ranked.types | {"rank": "small"})


STATEFUL: dict[str, Callable[[Query], st.SearchStrategy[Query]]] = {
    "window of time": lambda query: windowed(query, "time"),
    "running": lambda query: windowed(query, "running"),
    "count window": lambda query: windowed(query, "count"),
    "last window": lambda query: windowed(query, "last events"),
    "session": lambda query: windowed(query, "session"),
    "landmark": lambda query: windowed(query, "landmark"),
    "last": last_n,
    "join": lambda query: joined(query, kind="time"),
    "join over the last": lambda query: joined(query, kind="last"),
    "pairs": paired,
    "product": multiplied,
    "lookup": looked_up,
    "pattern": patterned,
    "distinct": distinct,
    "fold": lambda query: _user_made(query, "fold"),
    "user's operator": lambda query: _user_made(query, "before"),
    "user's ticks": lambda query: _user_made(query, "ticks"),
    "top of windows": lambda query: topped(query, "windows"),
    "running top": lambda query: topped(query, "running"),
}


@st.composite
def alone(draw: st.DrawFn, kind: str) -> Query:
    """An operator by itself over a stream, or after a step without memory."""
    query = draw(stateless(draw(sources()), 1))
    if kind in STATELESS:
        return draw(STATELESS[kind](query))
    return draw(STATEFUL[kind](query))


@st.composite
def after_another(draw: st.DrawFn, kind: str) -> Query:
    """An operator that reads what another one tells, perhaps together with what that was made of."""
    query = draw(sources())
    made = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](query))
    if draw(st.integers(0, 3)) == 0:
        made = draw(_alike(made, query))
    return draw(STATEFUL[kind](draw(stateless(made, 1))))


@st.composite
def compositions(draw: st.DrawFn) -> Query:
    """An operator after another, beside it, or together with what it was made of."""
    query = draw(stateless(draw(sources())))
    made = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](query))
    made = draw(stateless(made))
    way = draw(st.sampled_from(["after", "after", "after", "diamond", "beside"]))
    if way == "diamond":
        meeting = draw(st.sampled_from([joined, looked_up, multiplied]))
        sides = (made, query) if draw(st.booleans()) else (query, made)
        made = draw(meeting(*sides))
    elif way == "beside":
        other = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](query))
        made = draw(_alike(made, other))
    made = draw(stateless(made, 1))
    if draw(st.booleans()):
        made = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](made))
    return made


@st.composite
def _alike(draw: st.DrawFn, one: Query, other: Query) -> Query:
    """The union of what two streams have in common: a text and a number each."""
    parts = []
    for query in (one, other):
        texts, numbers = query.of("str"), query.of("int")
        text = d.Formula("copy", draw(st.sampled_from(texts))) if texts else d.Formula("constant", by="none")
        number = d.Formula("copy", draw(st.sampled_from(numbers))) if numbers else d.Formula("constant", by=0)
        parts.append(d.Map(query.node, (("text", text), ("number", number)), only=True))
    return Query(d.Union(tuple(parts)), {"text": "str", "number": "int"})
