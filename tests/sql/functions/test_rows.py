"""What functions give is a matter of each row alone, and of no row at all nothing."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_series_equal

from penstock.query.origin import here
from penstock.query.purity import check_row_wise
from penstock.sql.functions import FUNCTIONS
from tests.sql.functions.cases import CASES, NOT_ASKED, Case
from tests.sql.functions.evaluator import argument

ASKED = [(case, asked) for case in CASES for asked in case.asked]


@pytest.mark.parametrize(("case", "asked"), ASKED, ids=[asked for _, asked in ASKED])
def test_rows_are_answered_one_by_one(case: Case, asked: str) -> None:
    schema = dict(case.frame.schema)
    made = argument(asked, schema)
    whole = case.frame.with_columns(made.expr.alias("_it"))["_it"]
    assert whole.dtype == made.dtype
    single = [case.frame[at].with_columns(made.expr.alias("_it"))["_it"] for at in range(case.frame.height)]
    assert_series_equal(pl.concat(single), whole, check_exact=True)
    assert case.frame.clear().with_columns(made.expr.alias("_it"))["_it"].dtype == made.dtype
    check_row_wise(made.expr, schema, asked, here())


def test_every_function_is_asked() -> None:
    called = {word for _, asked in ASKED for word in asked.replace("(", "( ").replace(",", " ").split()}
    unasked = {name for name in FUNCTIONS if f"{name}(" not in called}
    assert unasked == set(NOT_ASKED)
