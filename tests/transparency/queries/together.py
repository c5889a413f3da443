"""Drawing whole queries: an operator by itself, after another, beside it, or together with what it was made of."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.transparency import description as d
from tests.transparency.queries.columns import Query
from tests.transparency.queries.keyed import distinct, last_n, patterned, user_made
from tests.transparency.queries.meetings import joined, looked_up, multiplied, paired
from tests.transparency.queries.stateless import STATELESS, sources, stateless
from tests.transparency.queries.windows import topped, windowed

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
    "fold": lambda query: user_made(query, "fold"),
    "user's operator": lambda query: user_made(query, "before"),
    "user's ticks": lambda query: user_made(query, "ticks"),
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
