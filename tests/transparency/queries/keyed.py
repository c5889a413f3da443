"""Drawing what is remembered of a key: its last rows, patterns, whether it was seen, what the user's own code keeps."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.transparency import description as d
from tests.transparency.queries.columns import KEYS, SECOND, Query, Types, fresh, spans
from tests.transparency.queries.stateless import conditions
from tests.transparency.queries.windows import keys_of, windowed


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


@st.composite
def patterned(draw: st.DrawFn, query: Query) -> Query:
    keys = draw(keys_of(query))
    if not keys:
        return draw(windowed(query, "time"))
    contiguous, timeouts = draw(st.booleans()), draw(st.booleans()) and "matched" not in keys
    stem = fresh(query, "p")
    names = [f"{stem}{letter}" for letter in "abcd"[: draw(st.integers(2, 4))]]
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
def user_made(draw: st.DrawFn, query: Query, kind: str) -> Query:
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
