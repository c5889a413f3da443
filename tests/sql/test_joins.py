"""Joins and lookups in queries, compared with nested loops in Python."""

from __future__ import annotations

import polars as pl
import pytest

from tests.sql.harness import TIME, Names, Row, events, refusal, run

CALLS = {"ts": TIME, "src": pl.String(), "cost": pl.Int64(), "area": pl.Int32()}
BILLS = {"ts": TIME, "src": pl.String(), "cost": pl.Int64(), "paid": pl.Boolean(), "area": pl.Int64()}
CALL_ROWS: list[Row] = [{"ts": 10 * n, "src": f"s{n % 3}", "cost": n, "area": n % 2} for n in range(12)]
BILL_ROWS: list[Row] = [
    {"ts": 7 + 15 * n, "src": None if n == 3 else f"S{n % 4}", "cost": 5, "paid": n % 2 == 0, "area": n % 2}
    for n in range(8)
]


def names() -> Names:
    return Names({"calls": events("calls", CALL_ROWS, CALLS), "bills": events("bills", BILL_ROWS, BILLS)})


def pairs(before: int, after: int) -> list[tuple[Row, Row]]:
    return [
        (call, bill)
        for call in CALL_ROWS
        for bill in BILL_ROWS
        if call["src"].upper() == bill["src"] and -before <= bill["ts"] - call["ts"] <= after
    ]


def sort_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(list(row.values())))


ON = "calls c {} JOIN bills AS b ON upper(c.src) = b.src"


@pytest.mark.parametrize(
    ("within", "bounds"),
    [
        ("30 SECONDS", (30, 30)),
        ("'30s'", (30, 30)),
        ("5 SECONDS BEFORE AND 1 MINUTE AFTER", (5, 60)),
        ("60 SECONDS AFTER", (0, 60)),
        ("$far SECONDS BEFORE", (40, 0)),
    ],
)
def test_a_join_emits_the_pairs_within_its_bounds(within: str, bounds: tuple[int, int]) -> None:
    scope = names()
    scope.parameters = {"far": 40}
    text = (
        f"SELECT c.src, b.src AS other, c.ts AS at, b.ts AS then, b.cost + c.cost AS sum FROM {ON.format('')}"
    )
    expected = [
        {
            "src": call["src"],
            "other": bill["src"],
            "at": call["ts"],
            "then": bill["ts"],
            "sum": call["cost"] + bill["cost"],
        }
        for call, bill in pairs(*bounds)
    ]
    assert sort_rows(run(f"{text} WITHIN {within}", scope)) == sort_rows(expected)


@pytest.mark.parametrize("how", ["LEFT", "RIGHT", "FULL OUTER"])
def test_outer_joins_emit_unmatched_rows_with_nulls(how: str) -> None:
    on = f"{ON.format(how)} AND b.paid AND c.cost > 2 WITHIN 20 SECONDS"
    text = f"SELECT c.cost AS call, b.ts AS bill, b.src FROM {on}"
    matches = [(call, bill) for call, bill in pairs(20, 20) if bill["paid"] and call["cost"] > 2]
    expected = [{"call": call["cost"], "bill": bill["ts"], "src": bill["src"]} for call, bill in matches]
    if how != "RIGHT":
        calls = [call for call in CALL_ROWS if all(call is not one for one, _ in matches)]
        expected += [{"call": call["cost"], "bill": None, "src": None} for call in calls]
    if how != "LEFT":
        bills = [bill for bill in BILL_ROWS if all(bill is not one for _, one in matches)]
        expected += [{"call": None, "bill": bill["ts"], "src": bill["src"]} for bill in bills]
    assert sort_rows(run(text, names())) == sort_rows(expected)


def test_a_join_has_several_keys_of_different_types() -> None:
    text = """
        SELECT c.cost, b.ts FROM calls c JOIN bills b ON b.area = c.area AND b.src = upper(c.src) AND b.paid
        WITHIN 30 SECONDS WHERE c.cost > 1
    """
    expected = [
        {"cost": call["cost"], "ts": bill["ts"]}
        for call, bill in pairs(30, 30)
        if call["area"] == bill["area"] and bill["paid"] and call["cost"] > 1
    ]
    assert sort_rows(run(text, names())) == sort_rows(expected)
    assert expected


def test_using_merges_the_key_columns() -> None:
    both = "SELECT * FROM calls JOIN bills USING (src, cost) WITHIN 1 SECOND"
    scope = Names({"calls": events("calls", CALL_ROWS, CALLS), "bills": events("bills", CALL_ROWS, CALLS)})
    assert sort_rows(run(both, scope)) == sort_rows(
        [{**call, "ts_right": call["ts"], "area_right": call["area"]} for call in CALL_ROWS]
    )
    text = "SELECT src, bills.src AS other FROM calls JOIN bills USING (src, cost) WITHIN 1 SECOND"
    assert all(row["src"] == row["other"] for row in run(text, scope))


def test_a_stream_is_joined_with_itself_and_without_keys() -> None:
    text = "SELECT a.cost AS a, b.cost AS b FROM calls a JOIN calls b ON a.cost < b.cost WITHIN 15 SECONDS"
    assert sort_rows(run(text, names())) == sort_rows([{"a": n, "b": n + 1} for n in range(11)])
    text = "SELECT a.cost AS a, b.cost AS b FROM calls a CROSS JOIN calls b WITHIN 5 SECONDS"
    assert sort_rows(run(text, names())) == sort_rows([{"a": n, "b": n} for n in range(12)])
    text = "SELECT a.cost a, b.cost b FROM calls a JOIN calls b ON a.src = b.src AND a.cost <> b.cost WITHIN 1 EVENTS"
    # an event arrives as a left row first; so as a right row, the last left row it meets is itself
    steps = [{"a": n + 3, "b": n} for n in range(9)]
    assert sort_rows(run(text, names())) == sort_rows(steps)


def test_a_join_of_three_streams_is_aggregated() -> None:
    text = """
        SELECT c.src, COUNT(*) AS n, SUM(d.cost) AS cost
        FROM calls c JOIN bills b ON upper(c.src) = b.src WITHIN 30 SECONDS
                     JOIN calls d ON c.cost = d.cost WITHIN 1 MINUTE
        GROUP BY c.src WINDOWING 1 HOUR
    """
    matches = pairs(30, 30)
    expected = [
        {
            "src": src,
            "n": sum(call["src"] == src for call, _ in matches),
            "cost": sum(call["cost"] for call, _ in matches if call["src"] == src),
        }
        for src in sorted({call["src"] for call, _ in matches})
    ]
    assert run(text, names()) == expected


def latest(key: str, at: int) -> Row | None:
    bills = [bill for bill in BILL_ROWS if bill["src"] == key and bill["ts"] <= at]
    return bills[-1] if bills else None


def test_a_join_with_latest_looks_up_the_last_row() -> None:
    text = "SELECT c.cost, b.ts AS bill FROM calls c {} JOIN LATEST(bills) b ON upper(c.src) = b.src"
    lookups = [(call, latest(call["src"].upper(), call["ts"])) for call in CALL_ROWS]
    outer = [{"cost": call["cost"], "bill": bill and bill["ts"]} for call, bill in lookups]
    assert sort_rows(run(text.format("LEFT"), names())) == sort_rows(outer)
    inner = [row for row in outer if row["bill"] is not None]
    assert sort_rows(run(text.format(""), names())) == sort_rows(inner)
    paid = [{"cost": call["cost"], "bill": bill["ts"]} for call, bill in lookups if bill and bill["paid"]]
    assert sort_rows(run(text.format("") + " AND b.paid", names())) == sort_rows(paid)


@pytest.mark.parametrize(
    ("text", "condition", "where"),
    [
        ("SELECT c.src FROM calls c JOIN bills b ON c.src = b.src", "JOIN_UNBOUNDED", "line 1, column 32"),
        ("SELECT 1 AS a FROM calls, bills", "JOIN_UNBOUNDED", "line 1, column 27"),
        (
            "SELECT src FROM calls c JOIN bills b ON c.src = b.src WITHIN 5 SECONDS",
            "AMBIGUOUS_COLUMN",
            "line 1, column 8",
        ),
        (
            "SELECT c.src FROM calls c JOIN bills b ON c.src = b.paid WITHIN 5 SECONDS",
            "TYPE_MISMATCH",
            "line 1, column 43",
        ),
        (
            "SELECT c.src FROM calls c JOIN bils b ON c.src = b.src WITHIN 5 SECONDS",
            "UNKNOWN_STREAM",
            "line 1, column 32",
        ),
        (
            "SELECT c.src FROM calls c JOIN bills b ON c.src = b.scr WITHIN 5 SECONDS",
            "UNKNOWN_COLUMN",
            "line 1, column 51",
        ),
        (
            "SELECT c.src FROM calls c LEFT JOIN bills b ON c.src < b.src WITHIN 5 SECONDS",
            "BAD_JOIN",
            "line 1, column 37",
        ),
        (
            "SELECT c.src FROM calls c LEFT JOIN bills b ON c.src = b.src WITHIN 5 EVENTS",
            "JOIN_OUTER_EVENTS",
            None,
        ),
        ("SELECT c.src FROM calls c RIGHT JOIN LATEST(bills) b ON c.src = b.src", "BAD_JOIN", None),
        ("SELECT c.src FROM calls c LEFT JOIN LATEST(bills) b ON c.src = b.src AND b.paid", "BAD_JOIN", None),
        (
            "SELECT c.src FROM calls c JOIN LATEST(bills) b ON c.src = b.src WITHIN 5 SECONDS",
            "BAD_JOIN",
            None,
        ),
        ("SELECT c.src FROM LATEST(bills) c", "BAD_JOIN", None),
        (
            "SELECT c.src FROM calls c LEFT ANTI JOIN bills b ON c.src = b.src WITHIN 5 SECONDS",
            "UNSUPPORTED_SQL",
            None,
        ),
        ("SELECT c.src FROM calls c NATURAL JOIN bills b WITHIN 5 SECONDS", "UNSUPPORTED_SQL", None),
        (
            "SELECT c.src FROM calls c JOIN TUMBLE(bills, ts, INTERVAL 5 SECONDS) b ON c.src = b.src WITHIN 5 SECONDS",
            "BAD_WINDOW",
            None,
        ),
        ("SELECT c.src FROM calls c JOIN bills b ON c.src = b.src WITHIN 5 EVENTS BEFORE", "BAD_JOIN", None),
        (
            "SELECT c.src FROM calls c JOIN bills b ON c.src = b.src WITHIN 5 SECONDS WHERE SUM(c.cost) > 1",
            "MISPLACED_AGGREGATE",
            None,
        ),
    ],
)
def test_an_invalid_join_is_refused_with_its_position(text: str, condition: str, where: str | None) -> None:
    error = refusal(text, names())
    assert error.condition == condition
    assert (error.where or "").startswith("line 1, column ")
    assert where in (None, error.where)
    assert error.hint or error.detail
