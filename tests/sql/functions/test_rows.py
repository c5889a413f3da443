"""The result of a function depends on its row alone, keeps its type without rows, and survives pickling."""

from __future__ import annotations

import pickle

import polars as pl
import pytest
from polars.testing import assert_series_equal

from penstock.origin import here
from penstock.query.purity import check_row_wise
from penstock.sql.functions import FUNCTIONS
from tests.sql.functions.case import Case
from tests.sql.functions.cases import CASES, NOT_COMPARED
from tests.sql.functions.evaluator import compile_expression

CALLS = [(case, call) for case in CASES for call in case.calls]


@pytest.mark.parametrize(("case", "call"), CALLS, ids=[call for _, call in CALLS])
def test_a_row_does_not_depend_on_the_rows_beside_it(case: Case, call: str) -> None:
    schema = dict(case.frame.schema)
    compiled = compile_expression(call, schema)
    whole = case.frame.with_columns(compiled.expr.alias("_it"))["_it"]
    assert whole.dtype == compiled.dtype
    pieces = [case.frame[at : at + size] for at, size in batches(case.frame.height)]
    separate = pl.concat([piece.with_columns(compiled.expr.alias("_it"))["_it"] for piece in pieces])
    assert_series_equal(separate, whole, check_exact=True)
    assert case.frame.clear().with_columns(compiled.expr.alias("_it"))["_it"].dtype == compiled.dtype
    assert set(compiled.expr.meta.root_names()) <= set(schema)
    sent = pickle.loads(pickle.dumps(compiled.expr))
    assert_series_equal(case.frame.with_columns(sent.alias("_it"))["_it"], whole, check_exact=True)
    check_row_wise(compiled.expr, schema, call, here())


def batches(height: int) -> list[tuple[int, int]]:
    """Batches of one row, and of five."""
    starts = [at for at in range(height) if at % 6 < 2]
    return [(at, 1 if at % 6 == 0 else 5) for at in starts]


def test_every_function_has_a_call() -> None:
    called = {word for _, call in CALLS for word in call.replace("(", "( ").replace(",", " ").split()}
    without_call = {name for name in FUNCTIONS if f"{name}(" not in called}
    assert without_call == set(NOT_COMPARED)
