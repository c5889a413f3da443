"""Summarize integers: their count, sum, mean, least and greatest value in one aggregate.

Jobs of a template group share it: one summary is computed for all of them, and each job reads what it declares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.functions.contract import AggregateFunction, Piece
from penstock.operators.functions.count_sum import Avg, Count, CountValues, Sum
from penstock.operators.functions.extremes import Extreme, Max, Min
from penstock.operators.functions.sums import LIMB

#: the functions that a summary answers, and its field for each
FIELDS: dict[type[AggregateFunction], str] = {
    CountValues: "n",
    Sum: "sum",
    Avg: "mean",
    Min: "least",
    Max: "greatest",
}


@dataclass(frozen=True)
class Summary(AggregateFunction):
    """The summary of a column of Int64, a struct."""

    kind: ClassVar[str] = "summary"
    state_version: ClassVar[int] = 1

    def result_type(self, given: pl.DataType) -> pl.DataType:
        whole = pl.Int64()
        return pl.Struct({"n": whole, "sum": whole, "mean": pl.Float64(), "least": whole, "greatest": whole})

    def pieces(self) -> tuple[Piece, ...]:
        assert self.column is not None
        value = pl.col(self.column)
        ends = (Extreme(self.part(end), value, greatest=end == "hi") for end in ("lo", "hi"))
        return (*self._mean.pieces(), *ends)

    def result(self) -> pl.Expr:
        total = Sum(self.alias, self.column, self.of)
        return pl.struct(
            pl.col(self.part("n")).alias("n"),
            total.result().alias("sum"),
            self._mean.result().alias("mean"),
            pl.col(self.part("lo")).alias("least"),
            pl.col(self.part("hi")).alias("greatest"),
        ).alias(self.alias)

    @property
    def _mean(self) -> Avg:
        return Avg(self.alias, self.column, self.of)


def is_in_summary(function: AggregateFunction) -> bool:
    """Whether the summary of its column has the result of a function."""
    whole = function.of is not None and function.of.is_integer() and function.of not in (pl.UInt64, pl.Int128)
    return type(function) in FIELDS and whole


def read_summary(function: AggregateFunction, summary: str) -> pl.Expr:
    """The result of a function, from the summary in a column of this name."""
    field = pl.col(summary).struct.field(FIELDS[type(function)])
    return field.cast(function.result_type(function.column_type)).alias(function.alias)


#: the alias of the count of rows that stands beside summaries, and the column of its partial aggregate
ROWS = "rows"
COUNT_PART = Count(ROWS, None).part("n")


def partial_columns(
    alias: str,
    n: npt.NDArray[np.int64],
    total: npt.NDArray[np.int64],
    least: npt.NDArray[np.int64],
    greatest: npt.NDArray[np.int64],
) -> list[pl.Series]:
    """The columns of a summary's partial aggregates, from totals that fit into 64 bits."""
    summary = summarize_column(alias, "")
    none = pl.Series(n == 0)
    limbs = {"s": total & (LIMB - 1), "h": total // LIMB, "n": n}
    columns = [pl.Series(summary.part(name), limb) for name, limb in limbs.items()]
    ends = {"lo": least, "hi": greatest}
    return columns + [pl.Series(summary.part(name), end).set(none, None) for name, end in ends.items()]


def summarize_column(alias: str, column: str) -> Summary:
    """The summary of a column."""
    return replace(Summary(alias, column), of=pl.Int64())
