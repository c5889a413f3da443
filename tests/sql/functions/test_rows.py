"""What functions give is a matter of each row alone, of no row at all nothing, and the same after a journey."""

from __future__ import annotations

import pickle

import polars as pl
import pytest
from polars.testing import assert_series_equal

from penstock.origin import here
from penstock.query.purity import check_row_wise
from penstock.sql.functions import FUNCTIONS
from tests.sql.functions.asking import Case
from tests.sql.functions.cases import CASES, NOT_ASKED
from tests.sql.functions.evaluator import argument

ASKED = [(case, asked) for case in CASES for asked in case.asked]


@pytest.mark.parametrize(("case", "asked"), ASKED, ids=[asked for _, asked in ASKED])
def test_rows_are_answered_one_by_one(case: Case, asked: str) -> None:
    schema = dict(case.frame.schema)
    made = argument(asked, schema)
    whole = case.frame.with_columns(made.expr.alias("_it"))["_it"]
    assert whole.dtype == made.dtype
    pieces = [case.frame[at : at + size] for at, size in cuts(case.frame.height)]
    apart = pl.concat([piece.with_columns(made.expr.alias("_it"))["_it"] for piece in pieces])
    assert_series_equal(apart, whole, check_exact=True)
    assert case.frame.clear().with_columns(made.expr.alias("_it"))["_it"].dtype == made.dtype
    assert set(made.expr.meta.root_names()) <= set(schema)
    sent = pickle.loads(pickle.dumps(made.expr))
    assert_series_equal(case.frame.with_columns(sent.alias("_it"))["_it"], whole, check_exact=True)
    check_row_wise(made.expr, schema, asked, here())


def cuts(height: int) -> list[tuple[int, int]]:
    """Batches of one row, and of five."""
    starts = [at for at in range(height) if at % 6 < 2]
    return [(at, 1 if at % 6 == 0 else 5) for at in starts]


def test_every_function_is_asked() -> None:
    called = {word for _, asked in ASKED for word in asked.replace("(", "( ").replace(",", " ").split()}
    unasked = {name for name in FUNCTIONS if f"{name}(" not in called}
    assert unasked == set(NOT_ASKED)
