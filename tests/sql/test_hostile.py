"""Statements that would take more than the process has are refused, with what they take and the limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import UserError
from penstock.sql.expressions import MOST_NESTED_BRANCHES
from tests.sql.harness import refusal, run

ROW = {"ts": 1_772_366_400, "product": "/a", "clicks_count": 1}


def _nest(step: Callable[[str], str], levels: int, inner: str = "product") -> str:
    for _ in range(levels):
        inner = step(inner)
    return inner


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("repeat(product, 2000000000)", "repeat"),
        ("repeat('x', 2000000000)", "repeat"),
        ("space(2000000000)", "space"),
        ("lpad(product, 2000000000, 'xy')", "lpad"),
        ("rpad(product, 2000000000)", "rpad"),
        ("format_string('%999999999s', product)", "format_string"),
        ("printf('%0999999999.15f', clicks_count)", "widths"),
        (f"format_string('{'%60000s' * 2}', product, product)", "widths"),
        (f"get_json_object(product, '${'[0]' * 5000}')", "100 steps"),
        (f"concat({','.join(['product'] * 1001)})", "1,000 arguments"),
    ],
)
def test_a_length_that_no_text_should_have_is_refused_at_its_place(expression: str, word: str) -> None:
    error = refusal(f"SELECT {expression} AS v FROM clicks")
    assert (error.condition, error.where) == ("BAD_ARGUMENT", "line 1, column 8")
    assert word in error.primary
    assert len(error.text()) < 1_000


def test_functions_that_need_their_arguments_several_times_do_not_double_for_ever() -> None:
    error = refusal(f"SELECT {_nest(lambda inner: f'substring({inner}, -3, 2)', 24)} AS v FROM clicks")
    assert error.condition == "EXPRESSION_TOO_LARGE"
    assert "the limit is 1,500,000" in error.primary


def test_a_plan_that_doubles_with_each_part_of_with_is_refused_with_its_size_and_the_limit() -> None:
    parts = ["p0 AS (SELECT product FROM clicks)"]
    parts += [
        f"p{n} AS (SELECT product FROM p{n - 1} UNION ALL SELECT product FROM p{n - 1})" for n in range(1, 40)
    ]
    error = refusal(f"WITH {', '.join(parts)} SELECT product FROM p39")
    assert error.condition == "PLAN_TOO_LARGE"
    assert "nodes, and the limit is 2,000" in error.primary


@pytest.mark.parametrize(
    "condition",
    [
        f"{'(' * 3000}small > 1{')' * 3000}",
        f"{'NOT ' * 3000}small > 1",
        f"small > {'- ' * 3000}1",
        f"small > {' + '.join(['1'] * 3000)}",
        f"small > {_nest(lambda inner: f'CASE WHEN small = 1 THEN {inner} END', 200, '1')}",
    ],
)
def test_expressions_that_are_nested_too_deeply_are_refused(condition: str) -> None:
    assert refusal(f"SELECT product FROM clicks WHERE {condition}").condition == "QUERY_TOO_DEEP"


def test_parts_of_with_that_read_each_other_too_often_are_refused() -> None:
    parts = ["p0 AS (SELECT small FROM clicks)"]
    parts += [f"p{n} AS (SELECT small + 1 AS small FROM p{n - 1})" for n in range(1, 1000)]
    assert refusal(f"WITH {', '.join(parts)} SELECT small FROM p999").condition == "QUERY_TOO_DEEP"


@pytest.mark.parametrize(
    "expression",
    [
        "repeat(product, clicks_count)",
        "lpad(product, clicks_count)",
        "rpad(product, clicks_count, 'xy')",
        "space(clicks_count)",
    ],
)
def test_a_row_that_would_become_too_long_ends_its_job_with_an_error(expression: str) -> None:
    query = f"SELECT {expression} AS v FROM clicks"
    assert len(run(query, [{**ROW, "clicks_count": 100}])[0]["v"]) in (100, 200)
    with pytest.raises(UserError, match="TEXT_TOO_LONG"):
        run(query, [{**ROW, "clicks_count": 2_000_000_000}])


def test_a_long_text_repeated_often_ends_its_job_with_an_error() -> None:
    query = "SELECT repeat(product, 50000) AS v FROM clicks"
    assert len(run(query, [ROW])[0]["v"]) == 100_000
    with pytest.raises(UserError, match="TEXT_TOO_LONG"):
        run(query, [{**ROW, "product": "/abc"}])


def test_long_paddings_are_cut_to_their_length() -> None:
    rows = run("SELECT rpad(product, 2001, 'xyz') AS v, rpad(product, 5, 'xyz') AS w FROM clicks", [ROW])
    assert rows == [{"v": ("/a" + "xyz" * 700)[:2001], "w": "/axyz"}]


@pytest.mark.parametrize("subject", ["CASE clicks_count WHEN {n} THEN", "CASE WHEN clicks_count = {n} THEN"])
def test_a_case_of_many_branches_chooses_the_first_that_is_true(subject: str) -> None:
    head, _, branch = subject.partition(" WHEN ")
    count = MOST_NESTED_BRANCHES + 10
    branches = "".join(
        f" WHEN {branch.format(n=n)} {'NULL' if n == 3 else repr(f'v{n}')}" for n in range(count)
    )
    query = f"SELECT {head}{branches} WHEN {branch.format(n=3)} 'second' ELSE 'none' END AS v FROM clicks"
    rows = run(query, [{**ROW, "clicks_count": n} for n in (0, 3, count - 1, count, None)])
    assert [row["v"] for row in rows] == ["v0", None, f"v{count - 1}", "none", "none"]


def test_five_thousand_branches_are_one_flat_expression() -> None:
    branches = " ".join(f"WHEN clicks_count = {n} THEN 'v{n}'" for n in range(5000))
    rows = run(f"SELECT CASE {branches} END AS v FROM clicks", [{**ROW, "clicks_count": 4999}])
    assert rows == [{"v": "v4999"}]


def test_many_times_in_a_list_are_found() -> None:
    times = ", ".join(f"'2026-03-01T12:00:{second:02}Z'" for second in range(60))
    assert run(f"SELECT product FROM clicks WHERE ts IN ({times}, NULL)", [ROW]) == [{"product": "/a"}]
