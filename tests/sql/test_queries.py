"""The rows of queries, compared with rows computed in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable

import polars as pl
import pytest

from penstock.query import logical
from penstock.sql.parse import parse
from penstock.sql.select import plan_select
from penstock.sql.statements import CreateJob
from tests.sql.harness import Names, Row, events, history, run, select, windows


def test_select_computes_expressions_and_nested_fields() -> None:
    rows = run(
        """
        SELECT product AS p, price * 2 + 1 AS twice, user.name, clicks.user.id AS who, tags[1] AS tag,
               CASE WHEN small < 10 THEN 'few' WHEN small < 20 THEN 'some' ELSE 'many' END AS much,
               CASE store WHEN 'books' THEN 1 ELSE 0 END AS book, IF(small > 30, price, NULL) AS late,
               -small AS minus, small / 8 AS part, small DIV 8 AS whole, -small % 8 AS rest, price / 0 AS never,
               upper(store) || '!' AS loud, coalesce(store, 'none') AS known, $n AS n
        FROM clicks
        """,
        history(),
        parameters={"n": 5},
    )
    expected = [
        {
            "p": row["product"],
            "twice": row["price"] * 2 + 1,
            "name": row["user"]["name"],
            "who": row["user"]["id"],
            "tag": row["tags"][1],
            "much": "few" if row["small"] < 10 else "some" if row["small"] < 20 else "many",
            "book": int(row["store"] == "books"),
            "late": row["price"] if row["small"] > 30 else None,
            "minus": -row["small"],
            "part": row["small"] / 8,
            "whole": row["small"] // 8,
            "rest": -(row["small"] % 8),
            "never": None,
            "loud": None if row["store"] is None else row["store"].upper() + "!",
            "known": row["store"] or "none",
            "n": 5,
        }
        for row in history()
    ]
    assert rows == expected


@pytest.mark.parametrize(
    ("condition", "is_true"),
    [
        ("store = 'books'", lambda row: row["store"] == "books"),
        ("store <> 'books'", lambda row: row["store"] not in (None, "books")),
        ("NOT store = 'books'", lambda row: row["store"] not in (None, "books")),
        ("store IS NULL", lambda row: row["store"] is None),
        ("store IS NOT NULL", lambda row: row["store"] is not None),
        ("store <=> NULL", lambda row: row["store"] is None),
        ("store IS DISTINCT FROM 'books'", lambda row: row["store"] != "books"),
        ("(store = 'books') IS NOT TRUE", lambda row: row["store"] != "books"),
        ("store IN ('books', 'x')", lambda row: row["store"] == "books"),
        ("store IN ('books', NULL)", lambda row: row["store"] == "books"),
        ("store NOT IN ('books', NULL)", lambda row: False),
        ("store NOT IN ('books')", lambda row: row["store"] == "video_games"),
        ("small IN (1, clicks_count, 7)", lambda row: row["small"] in (1, row["clicks_count"], 7)),
        ("small BETWEEN 5 AND 7", lambda row: 5 <= row["small"] <= 7),
        ("small NOT BETWEEN 5 AND 57", lambda row: not 5 <= row["small"] <= 57),
        ("store LIKE 'video%'", lambda row: (row["store"] or "").startswith("video")),
        (r"store LIKE 'video\\_gam__'", lambda row: row["store"] == "video_games"),
        ("store LIKE 'b!%' ESCAPE '!'", lambda row: False),
        ("store ILIKE 'BOOK_'", lambda row: row["store"] == "books"),
        ("store NOT LIKE '%o%'", lambda row: row["store"] is not None and "o" not in row["store"]),
        ("store NOT LIKE 'v%'", lambda row: row["store"] == "books"),
        ("store NOT LIKE 'v!%' ESCAPE '!'", lambda row: row["store"] is not None),
        ("store NOT RLIKE '^b.*s$'", lambda row: row["store"] == "video_games"),
        ("NOT store NOT ILIKE 'B%'", lambda row: row["store"] == "books"),
        ("store RLIKE '^b.*s$'", lambda row: row["store"] == "books"),
        ("small = '7'", lambda row: row["small"] == 7),
        ("price > 10", lambda row: row["price"] > 10),
        ("ts >= '1970-01-01 00:02:00'", lambda row: row["ts"] >= 120),
        ("ts + INTERVAL 10 SECONDS > TIMESTAMP '1970-01-01T00:02:00Z'", lambda row: row["ts"] > 110),
        (
            "bigint(ts) = 111 AND date(ts) = '1970-01-01' AND string(small) = '11'",
            lambda row: row["ts"] == 111,
        ),
        ("'it''s' = \"it's\" AND 'a\\'b' = \"a'b\" AND small = 1", lambda row: row["small"] == 1),
        ("product == `p0' AND `small` < 5", lambda row: row["product"] == "p0" and row["small"] < 5),
        ("CAST(ts AS BIGINT) = 111", lambda row: row["ts"] == 111),
        ("CAST(product AS INT) IS NULL AND small < 3", lambda row: row["small"] < 3),
        ("CAST(CAST(price AS STRING) AS DOUBLE) = 1.5", lambda row: row["price"] == 1.5),
        ("TRUE AND (small = 1 OR small = 2 OR NULL)", lambda row: row["small"] in (1, 2)),
        ("NULL", lambda row: False),
    ],
)
def test_where_keeps_the_rows_for_which_a_condition_is_true(
    condition: str, is_true: Callable[[Row], bool]
) -> None:
    rows = run(f"SELECT small FROM clicks WHERE {condition}", history())
    assert [row["small"] for row in rows] == [row["small"] for row in history() if is_true(row)]


def test_each_condition_of_a_conjunction_is_a_filter_in_order() -> None:
    scope = Names({"clicks": events("clicks", [])})
    text = "SELECT * FROM clicks WHERE small = 1 AND (price = 2 AND clicks_count = 3) AND (small = 4 OR small = 5)"
    node = plan_select(select(text), scope).node
    columns = []
    while isinstance(node, logical.Filter):
        columns.append(sorted(set(node.predicate.meta.root_names())))
        node = node.input
    assert columns[::-1] == [["small"], ["price"], ["clicks_count"], ["small"]]


def test_all_aggregates_of_a_window() -> None:
    rows = run(
        """
        SELECT window_start AS since, product, COUNT(*) AS n, COUNT(clicks_count) AS some, COUNT(1) AS ones,
               COUNT(DISTINCT store) AS stores, SUM(clicks_count) AS total, SUM(price * small) / COUNT(*) AS mean,
               AVG(price) AS avg, MIN(small) AS low, MAX(store) AS high, FIRST(small) AS first, LAST(small) AS last,
               STDDEV(price) AS dev, STDDEV_POP(price) AS dev_pop, VARIANCE(price) AS var, VAR_POP(price) AS var_pop,
               MEDIAN(small) AS mid, PERCENTILE(small, 0.25) AS quarter, APPROX_COUNT_DISTINCT(store) AS about,
               COLLECT_LIST(store) AS list, COLLECT_SET(store) AS set,
               COUNT(*) FILTER (WHERE small % 2 = 0) AS even, SUM(small) FILTER (WHERE small > 1000) AS none,
               COUNT_IF(small > 30) AS late, BOOL_AND(small > 30) AS all_late, BOOL_OR(small > 30) AS any_late
        FROM clicks GROUP BY product WINDOWING 20 SECONDS
        """,
        history(),
    )
    expected = []
    for (start, product), group in windows(history(), 20, "product").items():
        prices, small = [row["price"] for row in group], sorted(row["small"] for row in group)
        counted = [row["clicks_count"] for row in group if row["clicks_count"] is not None]
        stores = [row["store"] for row in group if row["store"] is not None]
        mean = sum(prices) / len(prices)
        squares = sum((price - mean) ** 2 for price in prices)
        position = (len(small) - 1) / 4
        low, part = small[int(position)], position - int(position)
        expected.append(
            {
                "since": start,
                "product": product,
                "n": len(group),
                "some": len(counted),
                "ones": len(group),
                "stores": len(set(stores)),
                "total": sum(counted) if counted else None,
                "mean": sum(row["price"] * row["small"] for row in group) / len(group),
                "avg": mean,
                "low": small[0],
                "high": max(stores, default=None),
                "first": group[0]["small"],
                "last": group[-1]["small"],
                "dev": math.sqrt(squares / (len(prices) - 1)),
                "dev_pop": math.sqrt(squares / len(prices)),
                "var": squares / (len(prices) - 1),
                "var_pop": squares / len(prices),
                "mid": (small[(len(small) - 1) // 2] + small[len(small) // 2]) / 2,
                "quarter": low + part * (small[min(int(position) + 1, len(small) - 1)] - low),
                "about": len(set(stores)),
                "list": stores,
                "set": sorted(set(stores)),
                "even": sum(n % 2 == 0 for n in small),
                "none": None,
                "late": sum(n > 30 for n in small),
                "all_late": all(n > 30 for n in small),
                "any_late": any(n > 30 for n in small),
            }
        )
    assert [{**row, **dict.fromkeys(FLOATS, 0)} for row in rows] == [
        {**row, **dict.fromkeys(FLOATS, 0)} for row in expected
    ]
    for name in FLOATS:
        assert [row[name] for row in rows] == pytest.approx([row[name] for row in expected])


FLOATS = ("dev", "dev_pop", "var", "var_pop", "mean", "avg", "quarter")


def test_nulls_alone_sum_to_null_and_count_zero() -> None:
    rows = [{"ts": 1, "product": "a"}, {"ts": 2, "product": "b", "clicks_count": 0}]
    query = "SELECT product, SUM(clicks_count) s, COUNT(clicks_count) c, MAX(clicks_count) m FROM clicks"
    assert run(f"{query} GROUP BY product WINDOWING 1 MINUTE", rows) == [
        {"product": "a", "s": None, "c": 0, "m": None},
        {"product": "b", "s": 0, "c": 1, "m": 0},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT upper(product) AS p, COUNT(*) AS n FROM clicks GROUP BY upper(product) WINDOWING 30 SECONDS",
        "SELECT upper(product) AS p, COUNT(*) AS n FROM clicks GROUP BY p WINDOWING 30 SECONDS",
        "SELECT UPPER(clicks.product) AS p, COUNT(*) AS n FROM clicks GROUP BY 1 WINDOWING '30s'",
        "SELECT upper(product) AS p, COUNT(*) AS n FROM clicks GROUP BY Product WINDOWING $s SECONDS",
        "SELECT upper(product) p, COUNT(*) n FROM clicks GROUP BY 1, TUMBLE(ts, INTERVAL '30' SECOND)",
        "SELECT upper(product) p, COUNT(*) n FROM clicks GROUP BY 1, HOP(ts, INTERVAL 30 SECONDS, INTERVAL 30 SECONDS)",
        "SELECT upper(product) p, COUNT(*) n FROM TUMBLE(clicks, ts, INTERVAL '30 seconds') GROUP BY 1",
        "SELECT upper(x.product) p, COUNT(*) n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '30' SECONDS))"
        " AS x GROUP BY product, window_start, window_end",
        "WITH c AS (SELECT upper(product) AS u, ts FROM clicks) SELECT u AS p, COUNT(*) n FROM c GROUP BY u,"
        " TUMBLE(ts, INTERVAL 30 SECONDS)",
        "SELECT p, n FROM (SELECT upper(product) AS p, COUNT(*) AS n FROM clicks GROUP BY p WINDOWING 30 SECONDS) q",
    ],
)
def test_keys_and_windows_can_be_written_in_several_ways(text: str) -> None:
    expected = [
        {"p": product.upper(), "n": len(group)}
        for (_, product), group in windows(history(), 30, "product").items()
    ]
    assert run(text, history(), parameters={"s": 30}) == expected


def test_hopping_windows_and_their_bounds() -> None:
    text = (
        "SELECT COUNT(*) AS n, window_start, window_end, window_end - INTERVAL 1 SECOND AS before "
        "FROM clicks WINDOWING 60 SECONDS EVERY 20 SECONDS"
    )
    expected = []
    for start in range(60, 160, 20):
        n = sum(start <= row["ts"] < start + 60 for row in history())
        expected.append({"n": n, "window_start": start, "window_end": start + 60, "before": start + 59})
    assert run(text, history()) == expected
    hop = "SELECT COUNT(*) n, hop_start(ts) a, HOP_END() b FROM HOP(clicks, ts, INTERVAL 20 SECONDS, INTERVAL 1 MINUTE)"
    assert [list(row.values()) for row in run(hop, history())] == [list(row.values())[:3] for row in expected]


def test_session_windows_and_windows_of_events() -> None:
    times = [1, 2, 3, 50, 51, 200]
    rows = [{"ts": at, "product": "a", "small": n} for n, at in enumerate(times)]
    session = "SELECT product, COUNT(*) n, window_start s, window_end e FROM clicks GROUP BY product"
    expected = [(3, 1, 33), (2, 50, 81), (1, 200, 230)]
    for text in (f"{session} WINDOWING SESSION 30 SECONDS", f"{session}, SESSION(ts, INTERVAL 30 SECONDS)"):
        assert [(row["n"], row["s"], row["e"]) for row in run(text, rows)] == expected
    counted = "SELECT SUM(small) AS s FROM clicks WINDOWING 3 EVENTS"
    assert run(counted, rows) == [{"s": 3}, {"s": 12}]
    assert run(f"{counted} EVERY 1 EVENTS", rows) == [{"s": 3}, {"s": 6}, {"s": 9}, {"s": 12}]


def test_literals_can_have_any_size() -> None:
    huge = "9" * 5000
    text = f"SELECT {huge} AS huge, round(price, -400) AS zero, -{huge} < price AS less, $n AS n FROM clicks"
    (job,) = parse(f"CREATE JOB x AS SELECT a FROM b WITH ($n = {huge})")
    assert isinstance(job, CreateJob)
    rows = run(text, [{"ts": 1, "price": 3.5}], parameters=job.parameters)
    assert rows == [{"huge": math.inf, "zero": 0.0, "less": True, "n": math.inf}]


def test_an_aggregate_without_window_emits_running_totals() -> None:
    rows = [{"ts": 1, "product": "a"}, {"ts": 1, "product": "b"}, {"ts": 3, "product": "a"}]
    assert run("SELECT product, COUNT(*) AS n FROM clicks GROUP BY product", rows) == [
        {"product": "a", "n": 1},
        {"product": "b", "n": 1},
        {"product": "a", "n": 2},
    ]
    assert run("SELECT as_of, COUNT(*) AS n FROM clicks", rows) == [
        {"as_of": 2, "n": 2},
        {"as_of": 4, "n": 3},
    ]
    top = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product ORDER BY n DESC LIMIT 1"
    assert run(top, rows) == [{"product": "a", "n": 1}, {"product": "a", "n": 2}]


def test_distinct_emits_each_row_once_in_a_window() -> None:
    for text in (
        "SELECT DISTINCT store, product FROM clicks WINDOWING 30 SECONDS",
        "SELECT DISTINCT store, product FROM clicks GROUP BY product, store WINDOWING 30 SECONDS",
    ):
        found = [(row["store"], row["product"]) for row in run(text, history())]
        expected = [key[1:] for key in windows(history(), 30, "store", "product")]
        assert sorted(map(str, found)) == sorted(map(str, expected))
    assert run("SELECT DISTINCT * FROM (SELECT product FROM clicks) x WINDOWING 1 DAY", history()) == [
        {"product": f"p{n}"} for n in range(4)
    ]


def test_union_all_matches_columns_by_position_and_widens_numbers() -> None:
    text = """
        SELECT product AS what, small AS n FROM clicks WHERE small < 2
        UNION ALL SELECT store, clicks_count FROM clicks WHERE small = 4
        UNION ALL (SELECT 'x', 1.5 FROM clicks WHERE small = 5)
    """
    scope = Names({"clicks": events("clicks", history())})
    assert plan_select(select(text), scope).node.schema == {"what": pl.String(), "n": pl.Float64()}
    assert sorted(run(text, scope), key=lambda row: row["n"]) == [
        {"what": "p0", "n": 0.0},
        {"what": "p3", "n": 1.0},
        {"what": "x", "n": 1.5},
        {"what": "books", "n": 12.0},
    ]


def test_a_query_reads_the_results_of_queries() -> None:
    text = """
        WITH counts AS (SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 10 SECONDS),
             busy AS (SELECT * FROM counts WHERE n >= 3)
        SELECT product, COUNT(*) AS windows, MAX(n) AS most FROM busy GROUP BY product WINDOWING 1 HOUR
    """
    groups = windows(history(), 10, "product")
    rows = run(text, history())
    for row in rows:
        sizes = [len(group) for (_, product), group in groups.items() if product == row["product"]]
        assert row["windows"] == sum(size >= 3 for size in sizes)
        assert row["most"] == max(sizes)
    assert [row["product"] for row in rows] == sorted({product for _, product in groups})


def test_a_query_calls_user_functions() -> None:
    rows = run(
        "SELECT twice(small) AS t FROM clicks WHERE small < 3",
        history(),
        functions={"twice": lambda value: value * 2},
    )
    assert rows == [{"t": 0}, {"t": 2}, {"t": 4}]


def test_columns_of_a_job_may_have_the_names_of_window_bounds() -> None:
    counts = plan_select(
        select(
            "SELECT window_start, product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 10 SECONDS"
        ),
        Names({"clicks": events("clicks", history())}),
    )
    scope = Names({}, jobs={"counts": counts})
    text = "SELECT window_start AS at, SUM(n) AS n FROM counts GROUP BY window_start WINDOWING 1 HOUR"
    assert run(text, scope) == [{"at": 100 + 10 * n, "n": 10} for n in range(6)]
    text = "SELECT window_start AS at, SUM(n) AS n FROM counts WINDOWING 1 HOUR"
    assert run(text, scope) == [{"at": 0, "n": 60}]


def test_columns_may_have_names_that_penstock_uses_internally() -> None:
    rows = run(
        "SELECT small AS rank, COUNT(*) AS count FROM clicks GROUP BY rank ORDER BY rank LIMIT 2"
        " WINDOWING 1 HOUR",
        history(),
    )
    assert rows == [{"rank": 0, "count": 1}, {"rank": 1, "count": 1}]
