"""A row that is alone in its batch is computed as it is among others, to the last bit."""

from __future__ import annotations

import polars as pl
import pytest

from penstock import col
from penstock.origin import here
from penstock.query.steps import FilterStep, MapStep, MergedStep

ROWS = pl.DataFrame({"x": [number * 1.1 + 0.3 for number in range(300)], "n": list(range(300))})
DIVIDED = [col("x") / 100.0, col("n") / 49, (col("x") + 0.1) / 7.0, col("x").sqrt() / 3]


@pytest.mark.parametrize("expr", DIVIDED, ids=str)
def test_a_quotient(expr: pl.Expr) -> None:
    other = MapStep((("n", col("n") + 1),), here())
    for step in (MapStep((("q", expr),), here()), MergedStep((MapStep((("q", expr),), here()), other))):
        alone = pl.concat(step.apply(row) for row in ROWS.iter_slices(1))
        assert alone.equals(step.apply(ROWS))


@pytest.mark.parametrize("expr", DIVIDED, ids=str)
def test_a_condition_on_a_quotient(expr: pl.Expr) -> None:
    border = ROWS.select(expr.alias("q"))["q"][150]
    step = FilterStep(expr == border, here())
    assert pl.concat(step.apply(row) for row in ROWS.iter_slices(1)).equals(step.apply(ROWS))
    assert step.apply(ROWS).height >= 1


def test_a_function_of_the_users_own_never_sees_a_row_that_is_not_there() -> None:
    seen: list[int] = []

    def watched(values: pl.Series) -> pl.Series:
        seen.append(len(values))
        return values

    MapStep((("y", col("x").map_batches(watched, return_dtype=pl.Float64)),), here()).apply(ROWS[:1])
    assert seen == [1]
