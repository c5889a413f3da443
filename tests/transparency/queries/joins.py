"""Random joins, self joins, lookups and products, of two streams or of one with itself."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.transparency import description as d
from tests.transparency.queries.columns import EVENT, SECOND, SPANS, Query, Types, unused_name
from tests.transparency.queries.stateless import conditions, stateless
from tests.transparency.queries.windows import keys_of, windows


def _types_of_join(left: Types, right: Types, keys: Any, right_keys: Any, suffix: str) -> Types:
    shared = [mine for mine, theirs in zip(keys, right_keys, strict=True) if mine == theirs]
    return left | {
        (name + suffix if name in left else name): kind for name, kind in right.items() if name not in shared
    }


@st.composite
def _sides(draw: st.DrawFn, query: Query, right: Query | None) -> tuple[Query, Query, Any, Any]:
    """The two sides of a join, and keys of equal types on both."""
    if right is None:
        other = Query(d.Source("other"), EVENT)
        right = draw(stateless(draw(st.sampled_from([other, other, query])), 1))
    for kind in draw(st.permutations(["str", "int"])):
        mine, theirs = query.names_of(kind), right.names_of(kind)
        if mine and theirs:
            pairs = [(a, b) for a in mine for b in theirs]
            same = [(a, b) for a, b in pairs if a == b] or pairs
            one, other_key = draw(st.sampled_from(same if draw(st.integers(0, 4)) else pairs))
            return query, right, (one,), (other_key,)
    return query, right, (), ()


@st.composite
def joins(draw: st.DrawFn, query: Query, right: Query | None = None, kind: str | None = None) -> Query:
    left, right, keys, right_keys = draw(_sides(query, right))
    if not keys:
        return draw(windows(query, "time"))
    suffix = unused_name(Query(None, left.types | right.types), "_r")
    types = _types_of_join(left.types, right.types, keys, right_keys, suffix)
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
def self_joins(draw: st.DrawFn, query: Query) -> Query:
    keys = draw(keys_of(query))
    if not keys:
        return draw(windows(query, "time"))
    suffix = unused_name(query, "_p")
    types = _types_of_join(query.types, query.types, keys, keys, suffix)
    within = draw(st.none() | st.sampled_from([0, *SPANS]))
    last = draw(st.integers(1, 3)) if within is None else None
    where = draw(st.none() | conditions(Query(None, types)))
    return Query(
        d.SelfJoin(query.node, keys, within, last, where, draw(st.sampled_from([None, "strict"])), suffix),
        types,
    )


@st.composite
def lookups(draw: st.DrawFn, query: Query, right: Query | None = None) -> Query:
    left, table, keys, table_keys = draw(_sides(query, right))
    if not keys:
        return draw(windows(query, "time"))
    suffix = unused_name(Query(None, left.types | table.types), "_t")
    deleted = None
    types = table.types
    if draw(st.booleans()):
        deleted = unused_name(Query(None, left.types | table.types), "gone")
        formula = d.Formula("holds", by=draw(conditions(table)))
        table = Query(d.Map(table.node, ((deleted, formula),)), table.types | {deleted: "bool"})
    how = draw(st.sampled_from(["left", "inner"]))
    node = d.Lookup(left.node, keys, table.node, table_keys, how, deleted, draw(st.booleans()), suffix)
    return Query(node, _types_of_join(left.types, types, keys, table_keys, suffix))


@st.composite
def products(draw: st.DrawFn, query: Query, right: Query | None = None) -> Query:
    """Every row with every row near it in time."""
    distinct = right is None and draw(st.integers(0, 2)) == 0
    if right is None:
        other = Query(d.Source("other"), EVENT)
        right = query if distinct else draw(stateless(draw(st.sampled_from([other, other, query])), 1))
    suffix = unused_name(Query(None, query.types | right.types), "_x")
    types = _types_of_join(query.types, right.types, (), (), suffix)
    last = draw(st.none() | st.integers(1, 3))
    before: int | None = draw(st.sampled_from([0, 1, SECOND, 3 * SECOND]))
    after: int | None = draw(st.sampled_from([0, 1, SECOND, 3 * SECOND]))
    if last is not None and draw(st.booleans()):
        before = after = None
    if distinct:
        before = after
    where = draw(st.none() | conditions(Query(None, types)))
    return Query(d.Product(query.node, right.node, before, after, last, where, distinct, suffix), types)
