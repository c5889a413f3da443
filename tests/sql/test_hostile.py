"""Statements that would take more than the process has are refused, with what they take and the limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from penstock.epoch.job_memory import own_bytes
from penstock.errors import UserError
from penstock.query.purity import expressions_of_sql
from penstock.query.trial import TrialProcess, trials_in
from penstock.sql.expressions import MOST_NESTED_BRANCHES
from penstock.sql.parse import parse
from penstock.sql.select import MOST_COLUMNS, plan_select
from tests.sql.harness import Names, events, refusal, run, select

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


#: so many characters over HTTP, at most
LENGTH = 190_000
FRAGMENTS = [
    *(
        "'",
        "\\'",
        "'\\'",
        '"',
        '"\\"',
        "`",
        "`'",
        "/*",
        "*/",
        "/* */",
        "--",
        "--\n",
        "''",
        "'a",
        "`a",
        "\\",
        "$",
        "{",
    ),
    *(
        "[",
        "(",
        ")(",
        ",",
        "; ",
        "x'",
        "1.",
        "..",
        "::",
        "x::",
        "x.",
        "a->",
        "=>",
        "||",
        "- ",
        "NOT ",
        "CASE WHEN ",
        "IN (",
    ),
    *(
        "SELECT ",
        "WITH a AS (",
        "CAST(",
        "INTERVAL ",
        "STRUCT<",
        "ARRAY<",
        "JOIN a ",
        "UNION ",
        "\n",
        "\x00",
        "é",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "SELECT a FROM b WHERE "])
@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_text_takes_long_to_parse_whatever_it_repeats(fragment: str, before: str) -> None:
    text = (before + fragment * (LENGTH // len(fragment)))[:LENGTH]
    started = time.process_time()
    with suppress(UserError):
        parse(text)
    # some tenths of a second; what takes the square of the length took a minute
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "text", ["SELECT '" + "\\'" * 20_000, 'SELECT "' + '\\"' * 20_000, "SELECT " + "/*" * 20_000]
)
def test_what_is_never_closed_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(UserError, match="BAD_SQL"):
        parse(f"{text} FROM clicks")
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        "SELECT `" + "x" * 100_000 + "` FROM clicks",
        "SELECT product RLIKE '" + "(" * 50_000 + "' AS v FROM clicks",
        "SELECT regexp_like(product, '" + "(" * 50_000 + "') AS v FROM clicks",
        "SELECT date_format(ts, '" + "y" * 50_000 + "') AS v FROM clicks",
        "SELECT CAST(ts AS " + "X" * 50_000 + ") AS v FROM clicks",
        "SELECT " + "x" * 50_000 + "(ts) AS v FROM clicks",
    ],
)
def test_an_error_repeats_little_of_a_long_text(text: str) -> None:
    assert len(refusal(text).text()) < 4_000


def test_a_select_list_has_bounds() -> None:
    columns = ", ".join(f"SUM(small + {n}) AS c{n}" for n in range(MOST_COLUMNS + 1))
    error = refusal(f"SELECT {columns} FROM clicks WINDOWING 5 SECONDS")
    assert error.condition == "QUERY_TOO_LONG"
    assert "2,001 columns, and the limit is 2,000" in error.primary


@pytest.mark.process
def test_large_regular_expressions_are_compiled_in_the_child_process_alone() -> None:
    with closing(TrialProcess()) as process, trials_in(process), expressions_of_sql(alone=True):
        before = own_bytes()
        for n in range(100):
            likes = (
                f"product RLIKE '\\\\w{{{50 + n}}}' AS v, regexp_like(product, '\\\\p{{L}}{{{50 + n}}}') AS w"
            )
            plan_select(select(f"SELECT {likes} FROM clicks"), Names({"clicks": events("clicks", [])}))
        assert process.pid is not None
    assert own_bytes() - before < 100_000_000
