"""Queries that are refused while they are planned: the condition, the position, and a hint."""

from __future__ import annotations

import pytest

from penstock.errors import UserError
from tests.sql.harness import Names, events, refusal

COUNT = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product"


@pytest.mark.parametrize(
    ("text", "condition", "where", "hint"),
    [
        ("SELECT prodct FROM clicks", "UNKNOWN_COLUMN", (1, 8), "'product'"),
        ("SELECT small\n  FROM clicks\n WHERE\n  smal > 3", "UNKNOWN_COLUMN", (4, 3), "'small'"),
        ("SELECT user.nme FROM clicks", "UNKNOWN_COLUMN", (1, 8), "'name'"),
        ("SELECT clicks.smal FROM clicks", "UNKNOWN_COLUMN", (1, 8), "'small'"),
        ("SELECT product FROM cliks", "UNKNOWN_STREAM", (1, 21), "'clicks'"),
        ("SELECT product FROM my.clicks", "UNKNOWN_STREAM", (1, 21), "before the dot"),
        ("SELECT x.* FROM clicks", "UNKNOWN_STREAM", (1, 8), None),
        ("SELECT uper(product) FROM clicks", "UNKNOWN_FUNCTION", (1, 8), "'upper'"),
        ("SELECT su(small) FROM clicks", "UNKNOWN_FUNCTION", (1, 8), "'sum'"),
        ("SELECT upper() FROM clicks", "BAD_ARGUMENT", (1, 8), "upper('PenStock')"),
        ("SELECT sum(small, price) FROM clicks", "BAD_ARGUMENT", (1, 8), "1"),
        ("SELECT count() FROM clicks", "BAD_ARGUMENT", (1, 8), "COUNT(*)"),
        ("SELECT percentile(price, 5) FROM clicks", "BAD_ARGUMENT", (1, 8), "0.99"),
        ("SELECT sum(DISTINCT small) FROM clicks", "UNSUPPORTED_SQL", (1, 8), "COUNT(DISTINCT"),
        ("SELECT sum(product) FROM clicks", "TYPE_MISMATCH", (1, 8), "CAST"),
        ("SELECT 1 + product FROM clicks", "TYPE_MISMATCH", (1, 12), "CAST"),
        ("SELECT product FROM clicks WHERE product = 5", "TYPE_MISMATCH", (1, 34), "CAST"),
        ("SELECT product FROM clicks WHERE small = 'five'", "TYPE_MISMATCH", (1, 34), "CAST"),
        ("SELECT product FROM clicks WHERE ts > 'soon'", "TYPE_MISMATCH", (1, 34), "CAST"),
        ("SELECT product FROM clicks WHERE small", "TYPE_MISMATCH", (1, 34), "status = 200"),
        ("SELECT CASE WHEN TRUE THEN 1 ELSE 'a' || product END FROM clicks", "TYPE_MISMATCH", None, "CAST"),
        ("SELECT NULL AS x FROM clicks", "TYPE_MISMATCH", None, "CAST(NULL"),
        ("SELECT CAST(small AS BLOB) FROM clicks", "UNKNOWN_TYPE", None, "BIGINT"),
        ("SELECT product[0] FROM clicks", "TYPE_MISMATCH", (1, 8), None),
        ("SELECT now() FROM clicks", "NON_DETERMINISTIC", (1, 8), "window_end"),
        ("SELECT rand() FROM clicks", "NON_DETERMINISTIC", (1, 8), "window_end"),
        ("SELECT current_timestamp FROM clicks", "NON_DETERMINISTIC", None, "window_end"),
        ("SELECT current_date() FROM clicks", "NON_DETERMINISTIC", None, "window_end"),
        ("SELECT $misssing FROM clicks", "UNKNOWN_PARAMETER", (1, 8), "'missing'"),
        ("SELECT product, product FROM clicks", "NAME_TAKEN", (1, 17), "AS other"),
        ("SELECT product AS _p FROM clicks", "RESERVED_NAME", (1, 8), "underscore"),
        ("SELECT product, small FROM clicks GROUP BY product", "NOT_GROUPED", (1, 17), "MAX"),
        ("SELECT *, COUNT(*) FROM clicks GROUP BY product", "NOT_GROUPED", (1, 8), None),
        ("SELECT product FROM clicks WHERE COUNT(*) > 1", "MISPLACED_AGGREGATE", (1, 34), "HAVING"),
        ("SELECT SUM(COUNT(*)) FROM clicks", "MISPLACED_AGGREGATE", (1, 12), "HAVING"),
        ("SELECT COUNT(*) FROM clicks GROUP BY 3", "BAD_SQL", (1, 38), "1 to 1"),
        (f"SELECT COUNT(*) FROM clicks GROUP BY {'1' * 5000}", "BAD_SQL", (1, 38), "1 to 1"),
        ("SELECT CAST(small AS DECIMAL(a)) FROM clicks", "UNKNOWN_TYPE", None, "DECIMAL(p, s)"),
        (
            f"SELECT CAST(small AS DECIMAL(5, {'9' * 5000})) FROM clicks",
            "UNKNOWN_TYPE",
            None,
            "DECIMAL(p, s)",
        ),
        ("SELECT ts + INTERVAL 'two' WEEKS FROM clicks", "BAD_DURATION", None, "DAYS"),
        (f"SELECT format_string('%{'9' * 5000}d', small) FROM clicks", "BAD_ARGUMENT", (1, 8), None),
        ("SELECT product FROM clicks LIMIT 5", "UNSUPPORTED_SQL", (1, 34), "WINDOWING"),
        ("SELECT product FROM clicks ORDER BY small", "UNSUPPORTED_SQL", (1, 37), "WINDOWING"),
        ("SELECT product FROM clicks WINDOWING 5 SECONDS", "BAD_WINDOW", (1, 28), "DISTINCT"),
        ("SELECT DISTINCT product FROM clicks", "WINDOW_UNBOUNDED", None, "WINDOWING"),
        (f"{COUNT} ORDER BY n", "UNSUPPORTED_SQL", None, "LIMIT"),
        (f"{COUNT} HAVING n > 2 ORDER BY n LIMIT 3", "TOP_WITHOUT_AGGREGATE", None, None),
        (f"{COUNT} ORDER BY n LIMIT 3 WINDOWING 5 EVENTS", "UNSUPPORTED_SQL", None, "30 SECONDS"),
        (f"{COUNT} ORDER BY n LIMIT 0 WINDOWING 5 SECONDS", "BAD_TOP", None, "LIMIT 10"),
        (
            f"{COUNT} ORDER BY n NULLS FIRST LIMIT 3 WINDOWING 5 SECONDS",
            "UNSUPPORTED_SQL",
            None,
            "NULLS FIRST",
        ),
        (f"{COUNT} ORDER BY n, SUM(small) WINDOWING 5 SECONDS", "UNSUPPORTED_SQL", None, "one expression"),
        (f"{COUNT} LIMIT 3 OFFSET 2 WINDOWING 5 SECONDS", "UNSUPPORTED_SQL", None, "LIMIT 10"),
        (f"{COUNT} WINDOWING 0 SECONDS", "BAD_WINDOW", None, "30s"),
        (f"{COUNT} WINDOWING 5 SECONDS EVERY 3 EVENTS", "BAD_WINDOW", None, "both"),
        (f"{COUNT} WINDOWING SESSION 3 EVENTS", "BAD_WINDOW", None, "SESSION 30 MINUTES"),
        (f"{COUNT} WINDOWING '5 parsecs'", "BAD_DURATION", None, "SECONDS"),
        (f"{COUNT}, TUMBLE(ts, INTERVAL 1 MINUTE) WINDOWING 5 SECONDS", "BAD_WINDOW", None, "Leave one"),
        (f"{COUNT}, TUMBLE(price, INTERVAL 1 MINUTE)", "BAD_WINDOW", (1, 68), "ts"),
        (f"{COUNT}, TUMBLE(ts)", "BAD_WINDOW", (1, 61), "TUMBLE(ts,"),
        (f"{COUNT}, TUMBLE(ts, INTERVAL 1 MONTH)", "BAD_DURATION", None, "DAYS"),
        ("SELECT window_end, COUNT(*) FROM clicks", "UNKNOWN_COLUMN", (1, 8), "WINDOWING"),
        ("SELECT COUNT(*) OVER (PARTITION BY product) FROM clicks", "UNSUPPORTED_SQL", (1, 8), "WINDOWING"),
        (
            "SELECT product FROM clicks WHERE small IN (SELECT small FROM clicks)",
            "UNSUPPORTED_SQL",
            None,
            "LATEST",
        ),
        ("SELECT (SELECT 1) AS x FROM clicks", "UNSUPPORTED_SQL", None, "LATEST"),
        ("SELECT product FROM clicks UNION SELECT store FROM clicks", "UNSUPPORTED_SQL", None, "UNION ALL"),
        (
            "SELECT product FROM clicks UNION ALL SELECT store, small FROM clicks",
            "SCHEMA_MISMATCH",
            None,
            "as many",
        ),
        ("SELECT product FROM clicks UNION ALL SELECT small FROM clicks", "TYPE_MISMATCH", None, "CAST"),
        ("SELECT product FROM clicks INTERSECT SELECT store FROM clicks", "UNSUPPORTED_SQL", None, None),
        ("SELECT product FROM clicks TABLESAMPLE (5 PERCENT)", "UNSUPPORTED_SQL", None, None),
        ("SELECT product FROM clicks LATERAL VIEW explode(tags) t AS tag", "UNSUPPORTED_SQL", None, None),
        ("SELECT 1", "BAD_SQL", None, "FROM"),
        ("SELECT product FROM VALUES (1), (2)", "UNSUPPORTED_SQL", None, "FROM clicks"),
        ("SELECT product FROM tumbl(clicks, ts, INTERVAL 5 SECONDS)", "UNKNOWN_FUNCTION", None, "'tumble'"),
        ("SELECT COUNT(*) FROM clicks GROUP BY ROLLUP (product)", "UNSUPPORTED_SQL", None, None),
        ("SELECT product FROM clicks WHERE product RLIKE '('", "BAD_ARGUMENT", None, None),
        ("SELECT product FROM clicks WHERE product LIKE store", "BAD_ARGUMENT", None, None),
        ("SELECT COUNT(*) FROM clicks GROUP BY user WINDOWING 5 SECONDS", "BAD_KEY_TYPE", None, None),
    ],
)
def test_an_invalid_query_is_refused_with_its_position_and_a_hint(
    text: str, condition: str, where: tuple[int, int] | None, hint: str | None
) -> None:
    error = refusal(text, parameters={"missing": 1})
    assert error.condition == condition
    assert (error.where or "").startswith("line "), error
    if where is not None:
        assert error.where == f"line {where[0]}, column {where[1]}"
    if hint is not None:
        assert hint in (error.hint or ""), error


def test_a_query_without_any_stream_to_read_is_refused() -> None:
    assert refusal("SELECT a FROM *", Names({})).condition == "UNKNOWN_STREAM"
    assert refusal("SELECT a FROM b", Names({})).hint == "There are none yet."


def test_a_stream_without_event_time_cannot_be_aggregated() -> None:
    scope = Names({"clicks": events("clicks", [], time=None)})
    error = refusal(f"{COUNT} WINDOWING 5 SECONDS", scope)
    assert (error.condition, error.where) == ("MISSING_EVENT_TIME", "line 1, column 52")


def test_the_error_of_a_failing_user_function_has_its_position() -> None:
    def own(*arguments: object) -> object:
        raise ValueError("no")

    error = refusal("SELECT own(small) FROM clicks", functions={"own": own})
    assert (error.condition, error.where) == ("USER_FUNCTION_FAILED", "line 1, column 8")


def test_too_many_conditions_are_refused() -> None:
    text = "SELECT small FROM clicks WHERE " + " AND ".join(f"small <> {n}" for n in range(500))
    assert refusal(text).condition == "QUERY_TOO_DEEP"


def test_errors_can_be_pickled() -> None:
    import pickle

    error = refusal("SELECT prodct FROM clicks")
    assert isinstance(pickle.loads(pickle.dumps(error)), UserError)
