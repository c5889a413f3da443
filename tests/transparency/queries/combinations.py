"""Random queries: one operator, two in a row, two side by side, or one joined with its own input."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.transparency import description as d
from tests.transparency.queries.columns import Query
from tests.transparency.queries.joins import joins, lookups, products, self_joins
from tests.transparency.queries.keyed import distincts, last_n, patterns, user_operators
from tests.transparency.queries.stateless import STATELESS, sources, stateless
from tests.transparency.queries.windows import tops, windows

STATEFUL: dict[str, Callable[[Query], st.SearchStrategy[Query]]] = {
    "window of time": lambda query: windows(query, "time"),
    "running": lambda query: windows(query, "running"),
    "count window": lambda query: windows(query, "count"),
    "last window": lambda query: windows(query, "last events"),
    "session": lambda query: windows(query, "session"),
    "landmark": lambda query: windows(query, "landmark"),
    "last": last_n,
    "join": lambda query: joins(query, kind="time"),
    "join over the last": lambda query: joins(query, kind="last"),
    "pairs": self_joins,
    "product": products,
    "lookup": lookups,
    "pattern": patterns,
    "distinct": distincts,
    "fold": lambda query: user_operators(query, "fold"),
    "user's operator": lambda query: user_operators(query, "before"),
    "user's ticks": lambda query: user_operators(query, "ticks"),
    "top of windows": lambda query: tops(query, "windows"),
    "running top": lambda query: tops(query, "running"),
}


@st.composite
def single_operators(draw: st.DrawFn, kind: str) -> Query:
    """One operator over a stream, perhaps after a stateless one."""
    query = draw(stateless(draw(sources()), 1))
    if kind in STATELESS:
        return draw(STATELESS[kind](query))
    return draw(STATEFUL[kind](query))


@st.composite
def operator_pairs(draw: st.DrawFn, kind: str) -> Query:
    """An operator that reads the rows of another one, perhaps in a union with the input of that one."""
    query = draw(sources())
    derived = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](query))
    if draw(st.integers(0, 3)) == 0:
        derived = draw(_unions_of_columns(derived, query))
    return draw(STATEFUL[kind](draw(stateless(derived, 1))))


@st.composite
def compositions(draw: st.DrawFn) -> Query:
    """Operators in a row, side by side, or joined with their own input."""
    query = draw(stateless(draw(sources())))
    derived = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](query))
    derived = draw(stateless(derived))
    shape = draw(st.sampled_from(["after", "after", "after", "diamond", "beside"]))
    if shape == "diamond":
        join = draw(st.sampled_from([joins, lookups, products]))
        sides = (derived, query) if draw(st.booleans()) else (query, derived)
        derived = draw(join(*sides))
    elif shape == "beside":
        other = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](query))
        derived = draw(_unions_of_columns(derived, other))
    derived = draw(stateless(derived, 1))
    if draw(st.booleans()):
        derived = draw(STATEFUL[draw(st.sampled_from(sorted(STATEFUL)))](derived))
    return derived


@st.composite
def _unions_of_columns(draw: st.DrawFn, one: Query, other: Query) -> Query:
    """The union of two streams, each reduced to a text and a number."""
    parts = []
    for query in (one, other):
        texts, numbers = query.names_of("str"), query.names_of("int")
        text = d.Formula("copy", draw(st.sampled_from(texts))) if texts else d.Formula("constant", by="none")
        number = d.Formula("copy", draw(st.sampled_from(numbers))) if numbers else d.Formula("constant", by=0)
        parts.append(d.Map(query.node, (("text", text), ("number", number)), only=True))
    return Query(d.Union(tuple(parts)), {"text": "str", "number": "int"})
