"""Conditions evaluated once a value select the same events as row by row."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars import col

from penstock.errors import PenstockError
from penstock.query.jobs_plan import SharedSelection
from penstock.query.select_events import REPEATED, _Batch
from penstock.query.steps import EdgeSource

ROWS = 60
FRAME = pl.DataFrame(
    {
        "page": [("/", "/cart", None, "/help")[at * at % 7 % 4] for at in range(ROWS)],
        "status": [(200, None, 404)[at % 3] for at in range(ROWS)],
        "bytes": [at * 37 for at in range(ROWS)],
    }
)
CONDITIONS = (
    col("page") == "/cart",
    col("page") != "/cart",
    col("page").is_null(),
    col("page").fill_null("?").str.starts_with("/").not_(),
    col("page").is_in(["/", "/help"]),
    (col("status") > 200) | (col("page") == "/"),
    col("status").is_between(300, 404),
    col("bytes") > 1000,
    # of other rows too
    col("page").ne_missing(col("page").shift(1)),
    col("status").cum_count() > 5,
    col("status") == col("status").max(),
    col("page").is_first_distinct(),
)


def failing(job: int, error: PenstockError) -> None:
    raise AssertionError(f"{job} failed: {error}")


def batch(*conditions: pl.Expr, frame: pl.DataFrame = FRAME) -> _Batch:
    return _Batch(SharedSelection(EdgeSource("scan", "clicks"), conditions, (), (), ()), frame, failing)


@pytest.mark.parametrize("rows", [1, 2, 7, ROWS])
def test_conditions_select_what_they_select_row_by_row(rows: int) -> None:
    frame = FRAME.head(rows)
    found = batch(*CONDITIONS, frame=frame).masks
    for condition, mask in zip(CONDITIONS, found, strict=True):
        assert not isinstance(mask, PenstockError)
        assert mask.tolist() == frame.select(condition.fill_null(False)).to_series().to_list(), str(condition)


def test_only_conditions_on_one_column_are_evaluated_once_a_value() -> None:
    by_value = batch(*CONDITIONS).masks_by_value()
    assert sorted(by_value) == [0, 1, 2, 3, 4, 6]  # not of bytes: there every value is another
    assert FRAME["page"].n_unique() * REPEATED <= ROWS < FRAME["bytes"].n_unique() * REPEATED


def test_a_condition_that_fails_fails_alone() -> None:
    found = batch(col("page") == "/cart", col("page").str.to_integer() > 1, col("status") > 200).masks
    assert isinstance(found[1], PenstockError)
    assert isinstance(found[0], np.ndarray)
    assert isinstance(found[2], np.ndarray)
    assert found[0].sum() == (FRAME["page"] == "/cart").sum()
