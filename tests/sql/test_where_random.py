"""Random conditions: the rows are those for which a small evaluator with three truth values returns true."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.sql.parse import parse
from penstock.sql.select import plan_select
from penstock.sql.statements import Select
from penstock.testing import ListSink, run_inline
from tests.operators.harness import modestly
from tests.sql.harness import Names, Row, events

pytestmark = pytest.mark.slow

#: an expression: its text, and a function from a row to its value, None for NULL
Expression = tuple[str, Any]

COLUMNS = ("clicks_count", "small", "price")
ROWS: list[Row] = [
    {"ts": n, "clicks_count": a, "small": b, "price": c, "product": text}
    for n, (a, b, c, text) in enumerate(
        (a, b, c, text)
        for a in (None, -3, 0, 2)
        for b in (None, -2, 0, 5)
        for c in (None, -0.5, 0.0)
        for text in (None, "ab", "b%")
    )
]


def draw_numbers() -> st.SearchStrategy[Expression]:
    columns = st.sampled_from(COLUMNS).map(lambda name: (name, lambda row: row[name]))
    integers = st.integers(-4, 6).map(lambda n: (str(n) if n >= 0 else f"({n})", lambda row: n))
    halves = st.sampled_from([0.5, 1.5]).map(lambda x: (str(x), lambda row: x))
    null = st.just(("NULL", lambda row: None))
    return st.recursive(st.one_of(columns, columns, integers, halves, null), draw_arithmetic, max_leaves=4)


def draw_arithmetic(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def build(sign: str, left: Expression, right: Expression) -> Expression:
        def value(row: Row) -> Any:
            a, b = left[1](row), right[1](row)
            if a is None or b is None:
                return None
            if sign == "/":
                return None if b == 0 else a / b
            return a + b if sign == "+" else a - b if sign == "-" else a * b

        return f"({left[0]} {sign} {right[0]})", value

    return st.builds(build, st.sampled_from("+-*/"), parts, parts)


def draw_comparisons() -> st.SearchStrategy[Expression]:
    def build(sign: str, left: Expression, right: Expression) -> Expression:
        def value(row: Row) -> bool | None:
            a, b = left[1](row), right[1](row)
            if sign == "<=>":
                return bool(a == b)
            if a is None or b is None:
                return None
            return bool({"=": a == b, "==": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b}[sign])

        return f"{left[0]} {sign} {right[0]}", value

    def between(value: Expression, low: Expression, high: Expression) -> Expression:
        def is_true(row: Row) -> bool | None:
            x, a, b = (one[1](row) for one in (value, low, high))
            above = None if x is None or a is None else bool(x >= a)
            below = None if x is None or b is None else bool(x <= b)
            return and_(above, below)

        return f"{value[0]} BETWEEN {low[0]} AND {high[0]}", is_true

    def within(value: Expression, others: list[Expression]) -> Expression:
        def is_true(row: Row) -> bool | None:
            x = value[1](row)
            result: bool | None = False
            for other in others:
                y = other[1](row)
                result = or_(result, None if x is None or y is None else bool(x == y))
            return result

        return f"{value[0]} IN ({', '.join(other[0] for other in others)})", is_true

    def null(value: Expression) -> Expression:
        return f"{value[0]} IS NULL", lambda row: value[1](row) is None

    texts = st.sampled_from(["ab", "b%", "z"]).map(
        lambda text: (
            f"product = '{text}'",
            lambda row: None if row["product"] is None else row["product"] == text,
        )
    )
    return st.one_of(
        st.builds(
            build, st.sampled_from(["=", "==", "<>", "<", "<=", ">", "<=>"]), draw_numbers(), draw_numbers()
        ),
        st.builds(between, draw_numbers(), draw_numbers(), draw_numbers()),
        st.builds(within, draw_numbers(), st.lists(draw_numbers(), min_size=1, max_size=3)),
        st.builds(null, draw_numbers()),
        texts,
    )


def and_(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def or_(a: bool | None, b: bool | None) -> bool | None:
    return True if a or b else None if a is None or b is None else False


def draw_conditions() -> st.SearchStrategy[Expression]:
    def connect(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        def build(word: str, left: Expression, right: Expression) -> Expression:
            combine = and_ if word == "AND" else or_
            return f"({left[0]}) {word} ({right[0]})", lambda row: combine(left[1](row), right[1](row))

        def negate(part: Expression) -> Expression:
            def value(row: Row) -> bool | None:
                value = part[1](row)
                return None if value is None else not value

            return f"NOT ({part[0]})", value

        return st.one_of(
            st.builds(build, st.sampled_from(["AND", "OR"]), parts, parts), st.builds(negate, parts)
        )

    return st.recursive(draw_comparisons(), connect, max_leaves=6)


@settings(modestly, max_examples=60)
@given(st.lists(draw_conditions(), min_size=3, max_size=3))
def test_where_keeps_the_rows_for_which_a_condition_is_true(conditions: list[Expression]) -> None:
    scope = Names({"clicks": events("clicks", ROWS)})
    outputs, sinks = [], []
    for number, (text, _) in enumerate(conditions):
        (query,) = parse(f"SELECT CAST(ts AS BIGINT) AS n FROM clicks WHERE {text}")
        assert isinstance(query, Select)
        sinks.append(ListSink())
        outputs.append(ps.output(f"o{number}", plan_select(query, scope), sinks[-1]))
    with tempfile.TemporaryDirectory() as folder:
        run_inline(ps.app("test", *outputs), Path(folder) / "state", slices=1, buckets=2)
    for (text, is_true), sink in zip(conditions, sinks, strict=True):
        assert [row["n"] for row in sink.rows()] == [row["ts"] for row in ROWS if is_true(row)], text
