"""Work on whole columns that has no expression: NumPy, or steps for some of the rows only.

The function's name goes along as a literal, so that an expression's text says which function it calls. Functions
stand in modules, where workers find them: expressions travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import polars as pl


def batched(
    name: str, function: Callable[..., pl.Series], gives: type[pl.DataType], *inputs: pl.Expr
) -> pl.Expr:
    """An expression that hands columns of equal rows to a function; its answer for a row depends on that row alone."""
    return pl.map_batches(
        [*inputs, pl.lit(name)],
        partial(_handed, function),
        return_dtype=gives,
        is_elementwise=True,
    )


def _handed(function: Callable[..., pl.Series], columns: Sequence[pl.Series]) -> pl.Series:
    return function(*columns[:-1])
