"""Random streams and stateless operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.transparency import description as d
from tests.transparency.queries.columns import COMPARED, EVENT, POLARS, STREAMS, Query, unused_name


@st.composite
def conditions(draw: st.DrawFn, query: Query, *, others: tuple[str, ...] = ()) -> d.Compare:
    """A condition on the query's columns; with `others`, perhaps on a column of an earlier step's event."""
    names = query.names_of(*COMPARED, "bool")
    if not names:
        return d.Compare(next(iter(query.types)), draw(st.sampled_from(["null", "true"])))
    name = draw(st.sampled_from(names))
    kind = query.types[name]
    same_type = query.names_of(kind)
    if others and draw(st.booleans()):
        other: Any = d.Other(draw(st.sampled_from(same_type)), draw(st.sampled_from(others)))
        return d.Compare(
            name, draw(st.sampled_from([">", "==", "!="] if kind != "bool" else ["==", "!="])), other
        )
    if kind == "bool":
        return d.Compare(name, "==", draw(st.booleans()))
    op = draw(st.sampled_from([">", ">", "!=", "!=", "!=", "true", "true", "<=", "==", "null"]))
    if op in ("null", "true"):
        return d.Compare(name, op)
    if len(same_type) > 1 and draw(st.integers(0, 3)) == 0:
        return d.Compare(name, op, d.Other(draw(st.sampled_from(same_type))))
    values = {"int": [-1, 0, 1, 2], "float": [-3.0, 0.0, 0.25], "str": ["", "/b", "bob"]}
    return d.Compare(name, op, draw(st.sampled_from(values[kind])))


@st.composite
def maps(draw: st.DrawFn, query: Query) -> Query:
    choices = [("constant", "str"), ("holds", "bool")]
    choices += [(what, "int") for what in ("plus", "times", "mod") if query.names_of("int")]
    choices += [("upper", "str")] if query.names_of("str") else []
    what, kind = draw(st.sampled_from(choices))
    name = unused_name(query, "m")
    if what == "constant":
        formula = d.Formula(what, by="all")
    elif what == "holds":
        formula = d.Formula(what, by=draw(conditions(query)))
    else:
        column = draw(st.sampled_from(query.names_of(kind)))
        if draw(st.booleans()) and column not in ("time",):
            name = column
        formula = d.Formula(what, column, draw(st.integers(2, 3)))
    return Query(d.Map(query.node, ((name, formula),)), query.types | {name: kind})


@st.composite
def selections(draw: st.DrawFn, query: Query) -> Query:
    """Some columns only, some under other names."""
    names = draw(st.lists(st.sampled_from(list(query.types)), min_size=1, unique=True))
    names += [name for name in query.names_of("str", "int")[:2] if name not in names]
    stem = unused_name(query, "s") if draw(st.booleans()) else ""
    columns = tuple((f"{stem}{name}", d.Formula("copy", name)) for name in names)
    return Query(
        d.Map(query.node, columns, only=True), {f"{stem}{name}": query.types[name] for name in names}
    )


@st.composite
def filters(draw: st.DrawFn, query: Query) -> Query:
    return Query(d.Filter(query.node, draw(conditions(query))), query.types)


@st.composite
def explodes(draw: st.DrawFn, query: Query) -> Query:
    lists = [name for name, kind in query.types.items() if isinstance(kind, tuple)]
    if lists and draw(st.booleans()):
        name = draw(st.sampled_from(lists))
        return Query(d.Explode(query.node, name), query.types | {name: query.types[name][1]})
    numbers = query.names_of("int")
    if not numbers:
        return draw(filters(query))
    name = unused_name(query, "l")
    steps = d.Map(query.node, ((name, d.Formula("steps", draw(st.sampled_from(numbers)))),))
    return Query(d.Explode(steps, name), query.types | {name: "int"})


@st.composite
def flat_maps(draw: st.DrawFn, query: Query) -> Query:
    numbers = query.names_of("int")
    if not numbers:
        return draw(filters(query))
    columns = {name: kind for name, kind in query.types.items() if kind in POLARS}
    number = unused_name(query, "t")
    node = d.FlatMap(query.node, draw(st.sampled_from(numbers)), number, tuple(columns.items()))
    return Query(node, columns | {number: "int"})


@st.composite
def demuxes(draw: st.DrawFn, query: Query) -> Query:
    given = tuple(draw(st.lists(conditions(query), min_size=1, max_size=2)))
    return Query(
        d.Demux(query.node, given, draw(st.integers(0, len(given))), draw(st.booleans())), query.types
    )


@st.composite
def unions(draw: st.DrawFn, query: Query) -> Query:
    """The union of a stream and itself, perhaps filtered: events may be in both parts."""
    part = draw(st.sampled_from([query, *([draw(filters(query))] * 2)]))
    parts = (query.node, part.node) if draw(st.booleans()) else (part.node, query.node)
    return Query(d.Union(parts), query.types)


def rebalances(query: Query) -> st.SearchStrategy[Query]:
    return st.just(Query(d.Rebalance(query.node), query.types))


STATELESS: dict[str, Callable[[Query], st.SearchStrategy[Query]]] = {
    "map": maps,
    "select": selections,
    "filter": filters,
    "explode": explodes,
    "flat map": flat_maps,
    "demux": demuxes,
    "union": unions,
    "rebalance": rebalances,
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
    row_by_row = ["map", "select", "union", "rebalance"]
    for _ in range(draw(st.integers(0, most))):
        query = draw(STATELESS[draw(st.sampled_from(row_by_row + sorted(STATELESS)))](query))
    return query
