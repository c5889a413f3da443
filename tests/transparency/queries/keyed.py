"""Random operators with state by key: last rows, patterns, distinct, user functions and custom operators."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.transparency import description as d
from tests.transparency.queries.columns import KEYS, SECOND, Query, Types, spans, unused_name
from tests.transparency.queries.stateless import conditions
from tests.transparency.queries.windows import keys_of, windows


@st.composite
def last_n(draw: st.DrawFn, query: Query) -> Query:
    keys = draw(keys_of(query))
    values = tuple(draw(st.lists(st.sampled_from(list(query.types)), min_size=1, max_size=3, unique=True)))
    values = tuple(value for value in values if value not in keys)
    if not keys or not values:
        return draw(windows(query, "time"))
    node = d.Last(query.node, keys, draw(st.integers(1, 4)), values, draw(st.booleans()))
    kinds = {key: query.types[key] for key in keys}
    return Query(node, kinds | {value: ("list", query.types[value]) for value in values})


@st.composite
def patterns(draw: st.DrawFn, query: Query) -> Query:
    keys = draw(keys_of(query))
    if not keys:
        return draw(windows(query, "time"))
    contiguous, timeouts = draw(st.booleans()), draw(st.booleans()) and "matched" not in keys
    stem = unused_name(query, "p")
    names = [f"{stem}{letter}" for letter in "abcd"[: draw(st.integers(2, 4))]]
    steps: list[d.Step] = []
    for number, name in enumerate(names):
        earlier = tuple(step.name for step in steps if not step.absent)
        last = number == len(names) - 1
        may_be_absent = number > 0 and (not timeouts if last else not contiguous)
        absent = may_be_absent and draw(st.booleans())
        steps.append(d.Step(name, draw(conditions(query, others=earlier)), absent))
    plain = [name for name in query.names_of(*KEYS, "float") if name not in keys and name != "time"]
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
def distincts(draw: st.DrawFn, query: Query) -> Query:
    names = query.names_of(*KEYS, "float")
    if not names:
        return draw(windows(query, "time"))
    columns = tuple(
        draw(st.lists(st.sampled_from(query.names_of("str") or names), min_size=1, max_size=2, unique=True))
    )
    return Query(d.Distinct(query.node, columns, draw(st.none() | spans)), query.types)


@st.composite
def user_operators(draw: st.DrawFn, query: Query, kind: str) -> Query:
    keys, values = query.names_of("str", "int", "bool"), query.names_of("int")
    if not keys or not values:
        return draw(windows(query, "time"))
    key, value = draw(st.sampled_from(query.names_of("str") or keys)), draw(st.sampled_from(values))
    types = (query.types[key], query.types[value])
    columns: Types = {"key": types[0], "value": types[1], "before": types[1]}
    if kind == "fold":
        return Query(d.Fold(query.node, key, value, types, draw(st.none() | spans)), columns)
    if kind == "before":
        return Query(d.Previous(query.node, key, value, types), columns)
    order = draw(st.sampled_from([None, "epoch", "strict"]))
    node = d.TickCounts(
        query.node, key, types[0], draw(st.sampled_from([SECOND, 3 * SECOND])), draw(st.booleans()), order
    )
    return Query(node, {"key": types[0], "count": "int"})
