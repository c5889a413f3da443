"""Columns in the forms JSON and SQL hold, whatever their type and depth."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from penstock.sinks.portable import to_portable

MOMENT = datetime(2024, 1, 2, 3, 4, 5, 60000, UTC)


@pytest.mark.parametrize(
    ("dtype", "value", "plain"),
    [
        (pl.Datetime("us", "UTC"), MOMENT, "2024-01-02T03:04:05.060000Z"),
        (pl.Datetime("ms", "UTC"), MOMENT, "2024-01-02T03:04:05.060Z"),
        (pl.Date(), date(2024, 1, 2), "2024-01-02"),
        (pl.Time(), time(1, 2, 3), "01:02:03.000000"),
        (pl.Duration("ms"), timedelta(seconds=-1.5), -1.5),
        (pl.Decimal(10, 2), Decimal("1.50"), "1.50"),
        (pl.Binary(), b"\x00\xff", "AP8="),
        (pl.List(pl.Date()), [date(2024, 1, 2), None], ["2024-01-02", None]),
        (pl.Array(pl.Int64(), 2), [1, 2], [1, 2]),
        (pl.Array(pl.Binary(), 1), [b"\x00\xff"], ["AP8="]),
        (
            pl.List(pl.Struct({"at": pl.Datetime("us", "UTC"), "n": pl.Int64()})),
            [{"at": MOMENT, "n": 1}, {"at": None, "n": None}, None],
            [{"at": "2024-01-02T03:04:05.060000Z", "n": 1}, {"at": None, "n": None}, None],
        ),
        (pl.Struct({"days": pl.List(pl.Date())}), {"days": [date(2024, 1, 2)]}, {"days": ["2024-01-02"]}),
        (pl.List(pl.List(pl.Date())), [[date(2024, 1, 2)], [], None], [["2024-01-02"], [], None]),
        (pl.String(), "as it is", "as it is"),
    ],
)
def test_a_value_and_a_null_become_plain(dtype: pl.DataType, value: Any, plain: Any) -> None:
    rows = to_portable(pl.DataFrame({"before": [1, 2], "it": pl.Series([value, None], dtype=dtype)}))
    assert rows.columns == ["before", "it"]
    assert rows["it"].to_list() == [plain, None]
    assert [json.loads(line)["it"] for line in rows.write_ndjson().splitlines()] == [plain, None]


def test_rows_without_values_keep_their_columns() -> None:
    rows = pl.DataFrame(schema={"at": pl.Datetime("us", "UTC"), "days": pl.List(pl.Date())})
    assert to_portable(rows).columns == ["at", "days"]
